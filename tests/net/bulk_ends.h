// Two ends of a connection with a bulk link, in virtual time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/doors/sim_runtime.h"
#include "tests/net/bulk_fakes.h"

namespace swarmline {

inline constexpr std::uint64_t kPayloadMin = 100;

inline SharedBytes drawn(Rng& rng, std::size_t size) {
  Buffer buffer(size);
  for (std::byte& byte : buffer.bytes()) byte = static_cast<std::byte>(rng.below(256));
  return SharedBytes(std::move(buffer));
}

struct SeenEnd {
  std::shared_ptr<BulkConnection> connection;
  std::shared_ptr<DelayedConnection> beneath;
  std::vector<Frame> frames;
  std::vector<Error> closed;

  void start() {
    connection->start({.on_frame = [this](Frame frame) { frames.push_back(std::move(frame)); },
                       .on_closed = [this](Error error) { closed.push_back(std::move(error)); }});
    connection->believe({.room = [](std::uint16_t kind) {
      return FrameRoom{.meta_bytes_max = 1000, .payload_bytes_max = kind == 9 ? 1000 : 10'000'000U};
    }});
  }
};

class BulkEnds : public ::testing::Test {
 protected:
  explicit BulkEnds(std::uint64_t seed = 1)
      : runtime_(seed), delays_{.runtime = runtime_.node(SimNodeId{1}), .rng = Rng(seed)} {
    for (int i = 0; i < 2; ++i) {
      std::vector<std::unique_ptr<BulkBackend>> backends;
      backends.push_back(std::make_unique<FakeBackend>(delays_, links_));
      doors_.push_back(std::make_unique<BulkDoor>(
          delays_.runtime, BulkDoorOptions{.payload_bytes_min = kPayloadMin}, std::move(backends)));
      doors_.back()->allow({.ways = {"fake"}, .trusted = {}});
    }
  }
  ~BulkEnds() override {  // as a network that ends: what it held is let go of
    for (const SeenEnd* end : {&client_, &server_})
      if (end->beneath) end->beneath->forget();
    for (const auto& link : links_.made) link->forget();
  }
  // `dialled_as`: where the end that dialled thinks that it has come to.
  void connect(bool meets = true, const std::string& dialled_as = "10.0.0.2:22") {
    client_.beneath = std::make_shared<DelayedConnection>(
        delays_, Connection::Ends{.own = "10.0.0.1:11", .other = dialled_as});
    server_.beneath = std::make_shared<DelayedConnection>(
        delays_, Connection::Ends{.own = "10.0.0.2:22", .other = "10.0.0.1:11"});
    client_.beneath->join(server_.beneath);
    server_.beneath->join(client_.beneath);
    client_.connection = doors_[0]->over(client_.beneath);
    server_.connection = doors_[1]->over(server_.beneath);
    client_.start();
    server_.start();
    if (!meets) return;
    const std::string answer = server_.connection->answer(client_.connection->offer());
    ASSERT_TRUE(client_.connection->take_answer(answer).has_value());
    ASSERT_TRUE(run_until([&] {
      return client_.connection->way() == "fake" && server_.connection->way() == "fake";
    }));
  }
  bool run_until(const std::function<bool()>& done, Duration limit = std::chrono::seconds(10)) {
    return runtime_.run_until(done, limit);
  }
  void run_for(Duration time) {
    bool over = false;  // the clock stands still where nothing is due
    delays_.runtime.call_after(time, [&over] { over = true; });
    EXPECT_TRUE(run_until([&over] { return over; }, time + std::chrono::seconds(1)));
  }
  FakeLink& servers_link() { return *links_.made.at(0); }
  FakeLink& clients_link() { return *links_.made.at(1); }
  // Straight into the connection beneath, as somebody who keeps no rules.
  void say_ticket(const BulkTicket& ticket, std::uint16_t kind = 1) {
    client_.beneath->send(
        {.kind = kind, .flags = kFrameFlagBulk, .payload = {SharedBytes(encode(ticket))}});
  }
  void expect_ended(ErrorCode code) {
    ASSERT_TRUE(run_until([&] { return !server_.closed.empty(); }));
    EXPECT_EQ(server_.closed.front().code, code) << server_.closed.front().what;
    EXPECT_TRUE(server_.frames.empty());
  }

  SimRuntime runtime_;
  FakeDelays delays_;
  FakeLinks links_;
  std::vector<std::unique_ptr<BulkDoor>> doors_;
  SeenEnd client_, server_;
};

inline Frame drawn_frame(Rng& rng, std::uint16_t number) {
  Frame frame{.kind = number, .meta = std::to_string(number)};
  const std::uint64_t what = rng.below(4);
  const std::size_t size = what == 0 ? 0 : what == 1 ? rng.below(kPayloadMin) : rng.below(5000);
  if (size == 0) return frame;
  const SharedBytes whole = drawn(rng, size);
  const std::size_t cut = rng.below(size + 1);
  frame.payload = {whole.slice(0, cut), whole.slice(cut, size - cut)};
  return frame;
}

}  // namespace swarmline
