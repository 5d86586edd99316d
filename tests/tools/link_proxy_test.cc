// A shaped link over real sockets.
#include "tools/link_proxy/link_proxy.h"

#include <optional>

#include <gtest/gtest.h>

#include "engine/net/tcp/tcp_network.h"
#include "tests/net/raw_socket.h"
#include "tools/link_proxy/link_control.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 20s;

// A TcpNetwork behind a proxy: `near_` reaches `far_` through the link.
class LinkProxyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto far = network_.listen({"127.0.0.1", 0}, [this](auto connection) {
      far_ = connection;
      connection->start({.on_frame = [this](Frame frame) { at_far_.push_back(std::move(frame)); },
                         .on_closed = [this](Error error) { far_closed_ = std::move(error); }});
    });
    ASSERT_TRUE(far.has_value());
    far_address_ = *far;
    LinkProxyOptions options;
    options.to = *far;
    proxy_.emplace(runtime_, options);
    const auto bound = proxy_->start();
    ASSERT_TRUE(bound.has_value());
    link_ = *bound;
  }

  void connect() {
    near_.reset();
    far_.reset();
    network_.connect(link_, kPatience, [this](Result<std::shared_ptr<Connection>> connection) {
      ASSERT_TRUE(connection.has_value());
      near_ = *connection;
      near_->start({.on_frame = [this](Frame frame) { at_near_.push_back(std::move(frame)); },
                    .on_closed = [this](Error error) { near_closed_ = std::move(error); }});
    });
    ASSERT_TRUE(until([this] { return near_ && far_; }));
  }
  bool until(const std::function<bool()>& done, Duration limit = kPatience) {
    return runtime_.run_until(done, limit);
  }
  static Frame frame_of(std::size_t bytes) {
    Frame frame;
    frame.kind = 3;
    frame.payload.push_back(SharedBytes(Buffer(bytes)));
    return frame;
  }
  Duration time_of(const std::function<bool()>& done) {
    const Instant begin = runtime_.now();
    EXPECT_TRUE(until(done));
    return runtime_.now() - begin;
  }

  AsioRuntime runtime_;
  TcpNetwork network_{runtime_, {}};
  std::optional<LinkProxy> proxy_;
  Address link_, far_address_;
  std::shared_ptr<Connection> near_, far_;
  std::vector<Frame> at_near_, at_far_;
  std::optional<Error> near_closed_, far_closed_;
};

TEST_F(LinkProxyTest, PassesBytesBothWays) {
  connect();
  near_->send(frame_of(3 * kMiB));
  far_->send(frame_of(2 * kMiB));
  ASSERT_TRUE(until([&] { return at_far_.size() == 1 && at_near_.size() == 1; }));
  EXPECT_EQ(at_far_[0].received_payload().size(), 3 * kMiB);
  // The proxy hears of its last write after the far end has read it.
  EXPECT_TRUE(until([&] {
    return proxy_->counters().forward_bytes >= 3 * kMiB &&
           proxy_->counters().backward_bytes >= 2 * kMiB;
  }));
  near_->close();
  ASSERT_TRUE(until([&] { return far_closed_ && near_closed_ && proxy_->counters().open == 0; }));
}

TEST_F(LinkProxyTest, ItsRateIsTheRateAskedFor) {
  connect();
  proxy_->set(LinkWay::kForward,
              {.bits_per_second = 80e6, .delay = {}, .jitter = {}, .corrupt = 0});
  near_->send(frame_of(5'000'000));  // 0.5 s
  const double seconds = to_seconds(time_of([&] { return !at_far_.empty(); }));
  EXPECT_GT(seconds, 0.475);  // never faster; how much slower is up to the machine
  far_->send(frame_of(5'000'000));
  EXPECT_LT(to_seconds(time_of([&] { return !at_near_.empty(); })),
            seconds);  // the way back is free
}

TEST_F(LinkProxyTest, DelaysEachWayByItself) {
  connect();
  proxy_->set(LinkWay::kForward, {.bits_per_second = 0, .delay = 80ms, .jitter = {}, .corrupt = 0});
  near_->send(frame_of(100));
  EXPECT_GE(time_of([&] { return !at_far_.empty(); }), 80ms);
  far_->send(frame_of(100));
  EXPECT_LT(time_of([&] { return !at_near_.empty(); }), 80ms);
}

TEST_F(LinkProxyTest, ACutLinkPassesNothingAndHealsWithoutLoss) {
  connect();
  proxy_->cut();
  near_->send(frame_of(1000));
  EXPECT_FALSE(until([&] { return !at_far_.empty(); }, 300ms));
  EXPECT_FALSE(near_closed_ || far_closed_);
  std::shared_ptr<Connection> late;
  network_.connect(link_, kPatience, [&](auto connection) { late = *connection; });
  ASSERT_TRUE(until([&] { return late != nullptr; }));  // the kernel answers for the proxy
  late->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
  late->send(frame_of(1000));
  EXPECT_FALSE(until([&] { return !at_far_.empty(); }, 100ms));
  proxy_->heal();
  EXPECT_TRUE(until([&] { return at_far_.size() == 2; }));
}

TEST_F(LinkProxyTest, AResetEndsConnectionsAtBothEnds) {
  connect();
  proxy_->reset();
  ASSERT_TRUE(until([&] { return near_closed_ && far_closed_; }));
  EXPECT_EQ(near_closed_->code, ErrorCode::kPeerGone);
  EXPECT_EQ(far_closed_->code, ErrorCode::kPeerGone);
  connect();  // new ones pass
  near_->send(frame_of(10));
  EXPECT_TRUE(until([&] { return at_far_.size() == 1; }));
}

TEST_F(LinkProxyTest, AHalfOpenLinkEndsAtOneEndUntilItHeals) {
  connect();
  proxy_->half_open(LinkEnd::kFar);
  ASSERT_TRUE(until([&] { return far_closed_.has_value(); }));
  near_->send(frame_of(100));
  EXPECT_FALSE(until([&] { return near_closed_.has_value(); }, 200ms)) << "nobody told it";
  const auto silent = near_;
  far_closed_.reset();
  connect();  // a new one works
  near_->send(frame_of(100));
  EXPECT_TRUE(until([&] { return at_far_.size() == 1; }));
  proxy_->heal();
  EXPECT_TRUE(until([&] { return near_closed_.has_value(); }));
  EXPECT_FALSE(far_closed_.has_value());
}

TEST_F(LinkProxyTest, ADeadEndResetsTheOther) {
  connect();
  network_.stop_listening();
  RawSocket raw = RawSocket::connect(link_);  // the far end refuses
  EXPECT_TRUE(
      until([&] { return proxy_->counters().connections == 2 && proxy_->counters().open == 1; }));
  EXPECT_EQ(raw.receive(1), "");
}

TEST_F(LinkProxyTest, CorruptionIsNoticedByTheFrames) {
  connect();
  proxy_->set(LinkWay::kForward, {.bits_per_second = 0, .delay = {}, .jitter = {}, .corrupt = 0.5});
  near_->send(frame_of(1000));
  ASSERT_TRUE(until([&] { return far_closed_.has_value(); }));
  EXPECT_EQ(far_closed_->code, ErrorCode::kCorrupt);
  EXPECT_TRUE(at_far_.empty());
  EXPECT_GT(proxy_->counters().corrupted_bytes, 0U);
}

TEST_F(LinkProxyTest, ASlowLinkHoldsBackItsSender) {
  proxy_->set(LinkWay::kForward, {.bits_per_second = 1e6, .delay = {}, .jitter = {}, .corrupt = 0});
  connect();
  near_->send(frame_of(64 * kMiB));
  EXPECT_FALSE(until([&] { return near_->unsent_bytes() < 32 * kMiB; }, 500ms));
}

TEST_F(LinkProxyTest, IsSteeredThroughItsControlPort) {
  LinkControl control(runtime_, *proxy_);
  const auto port = control.listen({"127.0.0.1", 0});
  ASSERT_TRUE(port.has_value());
  RawSocket raw = RawSocket::connect(*port);
  raw.send("set both rate=10M delay=1ms\r\nset backward rate=20M\ncut\n");
  ASSERT_TRUE(until([&] { return proxy_->is_cut(); }));
  until([] { return false; }, 200ms);  // the last answer leaves
  EXPECT_EQ(raw.receive(9), "ok\nok\nok\n");
  EXPECT_EQ(proxy_->shape(LinkWay::kForward).bits_per_second, 10e6);
  EXPECT_EQ(proxy_->shape(LinkWay::kBackward).bits_per_second, 20e6);
  EXPECT_EQ(proxy_->shape(LinkWay::kBackward).delay, 1ms);
  raw.send("heal\n");
  ASSERT_TRUE(until([&] { return !proxy_->is_cut(); }));
}

TEST_F(LinkProxyTest, SaysWhatItDidNotUnderstand) {
  EXPECT_EQ(steer_link(*proxy_, "stretch"),
            "error: \"stretch\": expected set, cut, heal, reset or show");
  EXPECT_EQ(steer_link(*proxy_, "set both colour=red").substr(0, 20), "error: \"colour=red\":");
  EXPECT_EQ(steer_link(*proxy_, "set sideways rate=1").substr(0, 16), "error: expected ");
  EXPECT_EQ(steer_link(*proxy_, "show").substr(0, 12), "ok forward: ");
}

}  // namespace
}  // namespace swarmline
