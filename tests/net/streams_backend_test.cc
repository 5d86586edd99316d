// How two ends come to have a link of several streams, over a network of delayed connections.
#include "engine/net/streams/streams_backend.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "sim/doors/sim_runtime.h"
#include "tests/net/bulk_fakes.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPayloadBytes = 500'000;

struct StreamsEnd {
  std::shared_ptr<BulkConnection> connection;
  std::vector<Frame> frames;
  std::vector<Error> closed;

  void start() {
    connection->start({.on_frame = [this](Frame frame) { frames.push_back(std::move(frame)); },
                       .on_closed = [this](Error error) { closed.push_back(std::move(error)); }});
  }
};

// Who listens takes what comes over its door, as peers do.
class DialledNetwork final : public Network {
 public:
  explicit DialledNetwork(FakeDelays& delays) : delays_(delays) {}
  ~DialledNetwork() override {
    for (const auto& end : made) end->forget();
  }
  Result<Address> listen(const Address& address, Accepted on_accepted) override {
    on_accepted_ = std::move(on_accepted);
    return address;
  }
  void connect(const Address& address, Duration, Connected on_connected) override {
    dialled.push_back(address);
    if (dialled.size() > answers)
      return delays_.runtime.post([on_connected = std::move(on_connected)] {
        on_connected(fail(ErrorCode::kPeerGone, "nobody listens there"));
      });
    const Connection::Ends near{.own = "10.0.0.1:" + std::to_string(1000 + dialled.size()),
                                .other = to_string(address)};
    // Where addresses are translated the other end sees another one.
    const Connection::Ends far{.own = to_string(address),
                               .other = translated.empty() ? near.own : translated};
    const auto one = std::make_shared<DelayedConnection>(delays_, near);
    const auto other = std::make_shared<DelayedConnection>(delays_, far);
    one->join(other);
    other->join(one);
    one->mib_takes = other->mib_takes = made.empty() ? first_takes : streams_take;
    if (is_another) one->key = std::nullopt;
    made.insert(made.end(), {one, other});
    on_accepted_(other);
    delays_.runtime.call_after(delays_.next(), [one, on_connected = std::move(on_connected)] {
      on_connected(std::shared_ptr<Connection>(one));
    });
  }
  void meet(const Meeting&, Duration, Connected) override {}
  void stop_listening() override {}

  std::size_t answers = 100;               // so many dials
  bool is_another = false;                 // who answers shows another key from now on
  std::string translated;                  // the dialling end's address, as the other end sees it
  Duration first_takes{}, streams_take{};  // a MiB
  std::vector<Address> dialled;
  std::vector<std::shared_ptr<DelayedConnection>> made;

 private:
  FakeDelays& delays_;
  Accepted on_accepted_;
};

class StreamsBackendTest : public ::testing::Test {
 protected:
  StreamsBackendTest()
      : runtime_(5), delays_{.runtime = runtime_.node(SimNodeId{1}), .rng = Rng(5)} {
    network_ = std::make_unique<DialledNetwork>(delays_);
    for (auto* door : {&near_door_, &far_door_}) {
      std::vector<std::unique_ptr<BulkBackend>> backends;
      backends.push_back(std::make_unique<StreamsBackend>(delays_.runtime, *network_));
      *door = std::make_unique<BulkDoor>(
          delays_.runtime, BulkDoorOptions{.payload_bytes_min = 1000}, std::move(backends));
    }
    allow(4, 4, false);
    static_cast<void>(
        network_->listen({"10.0.0.2", 22}, [this](std::shared_ptr<Connection> accepted) {
          ends_.push_back(std::make_unique<StreamsEnd>());
          ends_.back()->connection = far_door_->over(std::move(accepted));
          ends_.back()->start();
        }));
  }
  void allow(std::uint32_t near, std::uint32_t far, bool measures) {
    near_door_->allow({.ways = {"streams"}, .trusted = {}, .streams = near, .measures = measures});
    far_door_->allow({.ways = {"streams"}, .trusted = {}, .streams = far, .measures = measures});
  }
  bool run_until(const std::function<bool()>& done, Duration limit = 20s) {
    return runtime_.run_until(done, limit);
  }
  void run_for(Duration time) {
    bool over = false;
    delays_.runtime.call_after(time, [&over] { over = true; });
    EXPECT_TRUE(run_until([&over] { return over; }, time + 1s));
  }
  void connect() {
    network_->connect({"10.0.0.2", 22}, 1s, [this](auto made) {
      near_.connection = near_door_->over(std::move(*made));
      near_.start();
    });
    ASSERT_TRUE(run_until([this] { return near_.connection != nullptr; }));
  }
  StreamsEnd& far() { return *ends_.front(); }
  void offer() {
    const std::string answer = far().connection->answer(near_.connection->offer());
    if (!answer.empty()) EXPECT_TRUE(near_.connection->take_answer(answer).has_value());
  }
  bool both_go_over_streams() {
    return near_.connection->way() == "streams" && far().connection->way() == "streams";
  }
  // A payload arrives, whichever way it goes.
  void expect_payload() {
    Buffer payload(kPayloadBytes);
    for (std::size_t i = 0; i < payload.size(); ++i)
      payload.data()[i] = static_cast<std::byte>(i * 7 + i / 999);
    const SharedBytes whole(std::move(payload));
    const std::size_t before = far().frames.size();
    near_.connection->send({.kind = 1, .payload = {whole}});
    ASSERT_TRUE(run_until([&] { return far().frames.size() == before + 1; }));
    EXPECT_TRUE(same_bytes(far().frames.back().received_payload(), whole.view()));
  }
  // Once everything that could be tried has been.
  void expect_with_frames() {
    run_for(2 * kBulkMeetTime);
    EXPECT_EQ(near_.connection->way(), "");
    EXPECT_EQ(far().connection->way(), "");
    expect_payload();
    EXPECT_TRUE(near_.closed.empty() && far().closed.empty());
  }

  SimRuntime runtime_;
  FakeDelays delays_;
  std::unique_ptr<BulkDoor> near_door_, far_door_;
  std::unique_ptr<DialledNetwork> network_;
  std::vector<std::unique_ptr<StreamsEnd>> ends_;  // accepted
  StreamsEnd near_;
};

TEST_F(StreamsBackendTest, TheEndThatDialledDialsAgainToTheSameAddress) {
  connect();
  offer();
  ASSERT_TRUE(run_until([this] { return both_go_over_streams(); }));
  EXPECT_EQ(network_->dialled, std::vector<Address>(5, Address{"10.0.0.2", 22}));
  EXPECT_EQ(far_door_->counters().streams_taken, 4U);
  expect_payload();
  EXPECT_TRUE(run_until([this] { return near_door_->counters().payloads_sent == 1; }));
  for (std::size_t i = 1; i < ends_.size(); ++i) {  // whoever took them hears that they are none
    ASSERT_EQ(ends_[i]->closed.size(), 1U);
    EXPECT_EQ(ends_[i]->closed[0].code, ErrorCode::kStopped);
    EXPECT_TRUE(ends_[i]->frames.empty());
  }
}

TEST_F(StreamsBackendTest, TheSmallerNumberIsTaken) {
  allow(8, 3, false);
  connect();
  offer();
  ASSERT_TRUE(run_until([this] { return both_go_over_streams(); }));
  EXPECT_EQ(network_->dialled.size(), 1U + 3U);
}

// They go where the first connection goes: who translates addresses is no hindrance, and neither
// are links without keys.
TEST_F(StreamsBackendTest, BehindARouterThatTranslatesAddresses) {
  network_->translated = "192.0.2.7:40000";
  connect();
  network_->made[0]->key = network_->made[1]->key = std::nullopt;
  network_->is_another = true;  // the others show none either
  offer();
  ASSERT_TRUE(run_until([this] { return both_go_over_streams(); }));
  expect_payload();
}

TEST_F(StreamsBackendTest, NotOverARelay) {
  connect();
  network_->made[0]->relayed = network_->made[1]->relayed = true;
  EXPECT_EQ(near_.connection->offer(), "");
  expect_with_frames();
}

TEST_F(StreamsBackendTest, AStreamThatCannotBeMadeLeavesPayloadsWithTheirFrames) {
  network_->answers = 3;
  connect();
  offer();
  expect_with_frames();
  for (std::size_t i = 2; i < network_->made.size(); i += 2)
    EXPECT_TRUE(ends_[i / 2]->closed.size() == 1) << "the streams that were made are closed";
}

TEST_F(StreamsBackendTest, AnotherProcessAtThatAddressIsToldNoSecret) {
  connect();
  network_->is_another = true;
  offer();
  expect_with_frames();
  EXPECT_EQ(far_door_->counters().streams_taken, 0U);
  EXPECT_EQ(far_door_->counters().bad_tickets, 0U);
}

TEST_F(StreamsBackendTest, WhoKnowsNoSecretIsSentAway) {
  connect();
  offer();
  ASSERT_TRUE(run_until([this] { return both_go_over_streams(); }));
  std::shared_ptr<Connection> stranger;
  std::vector<Error> closed;
  network_->connect({"10.0.0.2", 22}, 1s, [&](auto made) {
    stranger = std::move(*made);
    stranger->start({.on_frame = [](const Frame&) {},
                     .on_closed = [&](Error error) { closed.push_back(std::move(error)); }});
    stranger->send(
        {.kind = 1, .flags = kFrameFlagBulkStream, .meta = std::string(kBulkSecretBytes, 'x')});
  });
  ASSERT_TRUE(run_until([&] { return !closed.empty(); }));
  EXPECT_EQ(far_door_->counters().bad_tickets, 1U);
  EXPECT_EQ(ends_.back()->closed.size(), 1U);
  expect_payload();
}

TEST_F(StreamsBackendTest, AnAnswerThatIsNoneIsRefused) {
  for (const std::string address :
       {"", "4", "4 0", "4 x", "1 1", "17 1", "5 1", "4 70000", "4 1 "}) {
    StreamsBackend backend(delays_.runtime, *network_);
    std::optional<Error> refused;
    backend.meet(
        {.own_host = "10.0.0.1", .other_host = "10.0.0.2", .streams = 4},
        {.backend = "streams", .address = address, .secret = std::string(kBulkSecretBytes, 's')},
        1s, [&](auto made) { refused = made.error(); });
    ASSERT_TRUE(run_until([&] { return refused.has_value(); })) << address;
    EXPECT_EQ(refused->code, ErrorCode::kCorrupt) << address;
  }
  EXPECT_TRUE(network_->dialled.empty());
}

// ---- Which way is faster ------------------------------------------------------------------------

class StreamsMeasuring : public StreamsBackendTest {
 protected:
  void measure(Duration first_takes, Duration streams_take) {
    network_->first_takes = first_takes;
    network_->streams_take = streams_take;
    allow(4, 4, true);
    connect();
    offer();
    ASSERT_TRUE(run_until([this] {
      return near_door_->counters().links_measured == 1 &&
             far_door_->counters().links_measured == 1;
    }));
  }
};

// Something on the way lets each connection have so much: four carry four times as much.
TEST_F(StreamsMeasuring, StreamsAreTakenWhereOneCannotFillTheLine) {
  measure(100ms, 100ms);
  EXPECT_TRUE(both_go_over_streams());
  expect_payload();
}

// The line is what bounds it: four connections have a quarter of it each.
TEST_F(StreamsMeasuring, OneConnectionIsKeptWhereItFillsTheLine) {
  measure(100ms, 400ms);
  EXPECT_EQ(near_.connection->way(), "");
  EXPECT_EQ(near_door_->counters().links_slower, 1U);
  EXPECT_EQ(near_door_->counters().trials_sent, 4U) << "more bytes gained nothing";
  expect_payload();
}

}  // namespace
}  // namespace swarmline
