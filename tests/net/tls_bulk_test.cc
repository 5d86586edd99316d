// Bulk between keys, which the control thread neither seals nor opens: it goes on meanwhile, order
// and bounds are what they are on plain links, and whatever ends a link in the middle is clean.
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "engine/net/tcp/tcp_network.h"
#include "tests/net/open_guard.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kBulkBytes = 24 * kMiB;

SharedBytes bulk(std::size_t bytes, std::uint64_t seed = 1) {
  Rng rng(seed);
  Buffer buffer(bytes);
  for (std::size_t at = 0; at + 8 <= bytes; at += 8) {
    const std::uint64_t word = rng.next_u64();
    std::memcpy(buffer.data() + at, &word, 8);
  }
  return SharedBytes(std::move(buffer));
}

// The other end of a link, on a control thread of its own.
class FarEnd {
 public:
  FarEnd() {
    thread_ = std::thread([this] { run(); });
    ready_.wait(false);
  }
  ~FarEnd() {
    runtime_->request_stop();
    thread_.join();
  }
  const Address& address() const { return address_; }
  bool has_heard() const { return arrived_ > 0; }  // any thread

 private:
  void run() {
    AsioRuntime runtime;
    TcpNetwork network(runtime, {.guard = std::make_shared<OpenGuard>()});
    std::vector<std::shared_ptr<Connection>> links;
    address_ = *network.listen({"127.0.0.1", 0}, [&](auto connection) {
      links.push_back(connection);
      connection->start(
          {.on_frame = [connection](Frame frame) { connection->send(std::move(frame)); },
           .on_closed = [](Error) {},
           .on_arriving = [this](const Arrival& a) { arrived_ = a.arrived.size(); }});
    });
    runtime_ = &runtime;
    ready_.test_and_set();
    ready_.notify_one();
    runtime.run();
  }

  std::thread thread_;
  std::atomic_flag ready_;
  AsioRuntime* runtime_ = nullptr;
  Address address_;
  std::atomic<std::size_t> arrived_ = 0;
};

class TlsBulk : public ::testing::Test {
 protected:
  struct End {
    std::shared_ptr<Connection> connection;
    std::vector<Frame> frames;
    std::optional<Error> closed;
  };
  std::shared_ptr<End> connect(TcpNetwork& network, const Address& address) {
    auto end = std::make_shared<End>();
    network.connect(address, 10s, [end](Result<std::shared_ptr<Connection>> made) {
      ASSERT_TRUE(made.has_value()) << made.error().what;
      end->connection = *made;
      end->connection->start(
          {.on_frame = [end = end.get()](Frame frame) { end->frames.push_back(std::move(frame)); },
           .on_closed = [end = end.get()](Error error) { end->closed = std::move(error); }});
    });
    EXPECT_TRUE(run_until([&] { return end->connection != nullptr; }));
    return end;
  }
  bool run_until(const std::function<bool()>& done) { return runtime_.run_until(done, 40s); }

  AsioRuntime runtime_;
};

// While the control thread stands still, the far end hears of a payload of which the control thread
// has sealed nothing.
TEST_F(TlsBulk, IsSealedWhileTheControlThreadDoesSomethingElse) {
  FarEnd far;
  TcpNetwork network(runtime_, {.guard = std::make_shared<OpenGuard>()});
  const auto end = connect(network, far.address());
  const SharedBytes payload = bulk(kBulkBytes);
  bool passed = false;
  end->connection->send({.kind = 1, .payload = {payload}});
  const std::uint64_t whole = end->connection->unsent_bytes();
  runtime_.post([&] {  // after what send() has posted, before anything that follows from it
    EXPECT_EQ(end->connection->unsent_bytes(), whole);
    for (int i = 0; i < 20'000 && !far.has_heard(); ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(far.has_heard());
    EXPECT_EQ(end->connection->unsent_bytes(), whole);
    passed = true;
  });
  ASSERT_TRUE(run_until([&] { return end->frames.size() == 1; }));
  EXPECT_TRUE(passed);
  EXPECT_TRUE(same_bytes(end->frames[0].received_payload(), payload.view()));
}

// Of several links that share the threads, each keeps its order; small frames go between large.
TEST_F(TlsBulk, KeepsItsOrderOnEachOfSeveralLinks) {
  FarEnd far;
  TcpNetwork network(runtime_, {.guard = std::make_shared<OpenGuard>()});
  std::vector<std::shared_ptr<End>> ends;
  for (int i = 0; i < 4; ++i) ends.push_back(connect(network, far.address()));
  constexpr std::uint64_t kFrames = 40;
  const SharedBytes all = bulk(2 * kMiB);
  Rng rng(9);
  std::vector<std::size_t> sizes;
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    sizes.push_back(i % 3 == 0 ? rng.next_u32() % (2 * kMiB) : rng.next_u32() % 2000);
    for (const auto& end : ends)
      end->connection->send({.kind = 1, .request = i, .payload = {all.slice(0, sizes.back())}});
  }
  for (const auto& end : ends) {
    ASSERT_TRUE(run_until([&] { return end->frames.size() == kFrames; }));
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      EXPECT_EQ(end->frames[i].request, i);
      EXPECT_TRUE(same_bytes(end->frames[i].received_payload(), all.view().first(sizes[i]))) << i;
    }
    EXPECT_EQ(end->connection->unsent_bytes(), 0U);
  }
}

// Who does not read: what is not sealed yet counts as unsent, and beyond the bound the link ends,
// in the middle of sealing.
TEST_F(TlsBulk, IsBoundedLikeAnythingElse) {
  TcpNetwork server(runtime_, {.guard = std::make_shared<OpenGuard>()});
  std::shared_ptr<Connection> silent;  // never started: it reads nothing
  const auto bound = server.listen({"127.0.0.1", 0}, [&](auto c) { silent = std::move(c); });
  TcpNetwork network(runtime_, {.queue_bytes_max = 40 * kMiB,
                                .socket_buffer_bytes = 64 * 1024,
                                .guard = std::make_shared<OpenGuard>()});
  const auto end = connect(network, *bound);
  end->connection->send({.kind = 1, .payload = {bulk(kBulkBytes)}});
  for (int i = 0; i < 3; ++i) run_until([n = 0]() mutable { return ++n > 2; });
  EXPECT_GT(end->connection->unsent_bytes(), kBulkBytes / 2);
  EXPECT_FALSE(end->closed.has_value());
  end->connection->send({.kind = 1, .payload = {bulk(kBulkBytes)}});
  ASSERT_TRUE(run_until([&] { return end->closed.has_value(); }));
  EXPECT_EQ(end->closed->code, ErrorCode::kRefused);
}

TEST_F(TlsBulk, ThatWasSentBeforeACloseArrives) {
  TcpNetwork server(runtime_, {.guard = std::make_shared<OpenGuard>()});
  End other;
  const auto bound = server.listen({"127.0.0.1", 0}, [&](auto connection) {
    other.connection = connection;
    connection->start({.on_frame = [&](Frame frame) { other.frames.push_back(std::move(frame)); },
                       .on_closed = [&](Error error) { other.closed = std::move(error); }});
  });
  TcpNetwork network(runtime_, {.guard = std::make_shared<OpenGuard>()});
  const auto end = connect(network, *bound);
  const SharedBytes payload = bulk(3 * kMiB);
  end->connection->send({.kind = 1, .payload = {payload}});
  end->connection->close();
  ASSERT_TRUE(run_until([&] { return end->closed && other.closed; }));
  EXPECT_EQ(end->closed->code, ErrorCode::kStopped);
  ASSERT_EQ(other.frames.size(), 1U);
  EXPECT_TRUE(same_bytes(other.frames[0].received_payload(), payload.view()));
}

// Either end goes at any moment of a transfer both ways: by a close, by its network, or with all.
TEST_F(TlsBulk, CutOffInTheMiddleEndsCleanly) {
  const SharedBytes payload = bulk(4 * kMiB);
  for (int round = 0; round < 36; ++round) {
    auto server =
        std::make_unique<TcpNetwork>(runtime_, TcpOptions{.guard = std::make_shared<OpenGuard>()});
    auto network =
        std::make_unique<TcpNetwork>(runtime_, TcpOptions{.guard = std::make_shared<OpenGuard>()});
    std::shared_ptr<Connection> other;
    std::optional<Error> closed;
    const auto bound = server->listen({"127.0.0.1", 0}, [&](auto connection) {
      other = connection;
      connection->start(
          {.on_frame = [](Frame) {}, .on_closed = [&](Error error) { closed = std::move(error); }});
    });
    const auto end = connect(*network, *bound);
    ASSERT_TRUE(run_until([&] { return other != nullptr; }));
    for (int i = 0; i < 3; ++i) {
      end->connection->send({.kind = 1, .payload = {payload}});
      other->send({.kind = 2, .payload = {payload}});
    }
    run_until([n = 0, round]() mutable { return ++n > round; });  // so many callbacks
    if (round % 3 == 0) {
      end->connection->close();
      ASSERT_TRUE(run_until([&] { return end->closed && closed; }));
    } else if (round % 3 == 1) {
      network.reset();
      ASSERT_TRUE(run_until([&] { return closed.has_value(); }));
      EXPECT_FALSE(end->closed.has_value()) << "it closes without callbacks";
    }
    network.reset();
    server.reset();
  }
}

}  // namespace
}  // namespace swarmline
