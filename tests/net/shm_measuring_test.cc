// Shared memory beside TCP, measured: whichever is faster here, a verdict comes, and all arrives.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "engine/net/bulk/bulk_connection.h"
#include "engine/net/bulk/bulk_factory.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPayloadBytes = 200'000;
constexpr std::size_t kPayloads = 60;

class ShmMeasuring : public ::testing::Test {
 protected:
  struct End {
    explicit End(AsioRuntime& runtime)
        : network(runtime, {}), door(make_bulk_door(runtime, network)) {
      door->allow({.ways = {"shm", "rdma"}, .trusted = {}, .measures = true});
    }
    void take(std::shared_ptr<Connection> made) {
      connection = door->over(std::move(made));
      connection->start({.on_frame = [this](Frame frame) { heard.push_back(std::move(frame)); },
                         .on_closed = [this](Error error) { closed.push_back(std::move(error)); }});
    }
    void say(std::size_t number) const {
      Buffer payload(kPayloadBytes);
      fill_bytes(payload.bytes(), static_cast<std::byte>(number));
      connection->send(
          {.kind = 1, .request = number, .payload = {SharedBytes(std::move(payload))}});
    }
    bool has_measured() const { return door->counters().links_measured == 1; }

    TcpNetwork network;
    std::unique_ptr<BulkDoor> door;
    std::shared_ptr<BulkConnection> connection;
    std::vector<Frame> heard;
    std::vector<Error> closed;
  };
  ShmMeasuring() : client_(runtime_), server_(runtime_) {}
  void connect() {
    const auto address =
        server_.network.listen({"127.0.0.1", 0}, [this](auto made) { server_.take(made); });
    client_.network.connect(*address, 10s, [this](auto made) { client_.take(*made); });
    ASSERT_TRUE(run_until([&] { return client_.connection && server_.connection; }));
    const std::string answer = server_.connection->answer(client_.connection->offer());
    ASSERT_TRUE(client_.connection->take_answer(answer).has_value());
  }
  bool run_until(const std::function<bool()>& done) { return runtime_.run_until(done, 20s); }

  AsioRuntime runtime_;
  End client_, server_;
};

TEST_F(ShmMeasuring, AVerdictComesAndAllPayloadsArrive) {
  connect();
  for (std::size_t i = 0; i < kPayloads; ++i) {
    client_.say(i);
    server_.say(i);
    if (i % 20 == 19)
      ASSERT_TRUE(run_until([&] { return client_.heard.size() > i && server_.heard.size() > i; }));
  }
  ASSERT_TRUE(run_until([&] { return client_.has_measured() && server_.has_measured(); }));
  for (const End* end : {&client_, &server_}) {
    const bool is_slower = end->door->counters().links_slower == 1;
    EXPECT_EQ(end->connection->way(), is_slower ? "" : "shm");
    EXPECT_EQ(end->door->counters().trials_sent, 2 * kBulkTrialRounds);
    ASSERT_EQ(end->heard.size(), kPayloads);
    for (std::size_t i = 0; i < kPayloads; ++i) {
      const BytesView got = end->heard[i].received_payload();
      EXPECT_EQ(end->heard[i].request, i);
      ASSERT_EQ(got.size(), kPayloadBytes);
      EXPECT_EQ(got[kPayloadBytes - 1], static_cast<std::byte>(i));
    }
    EXPECT_TRUE(end->closed.empty());
  }
}

}  // namespace
}  // namespace swarmline
