// What passes over a simulated node's card: what connections share, damage, and a node that takes
// nothing for a while.
#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// What one node sends and another takes, each over a card of 1 MB/s: who got what, and when.
class Cards {
 public:
  Cards() : runtime_(1), network_(runtime_, {.link = {.latency = 10ms}}) {}

  // A connection from `from` to `to` that notes the arrival of each frame at its end.
  std::shared_ptr<Connection> connect(SimNodeId from, SimNodeId to) {
    if (!addresses_.contains(to))
      addresses_[to] = *network_.node(to).listen({"", 0}, [this](auto connection) {
        connection->start({.on_frame =
                               [this](const Frame& frame) {
                                 arrivals_[frame.meta] = runtime_.now() - sent_;
                                 order_.push_back(frame.meta);
                                 for (const SharedBytes& p : frame.payload) payloads_.push_back(p);
                               },
                           .on_closed = [this](const Error&) { ++closed_; }});
        ends_.push_back(std::move(connection));
      });
    std::shared_ptr<Connection> made;
    network_.node(from).connect(addresses_[to], 10s, [&](auto connection) { made = *connection; });
    EXPECT_TRUE(runtime_.run_until([&] { return made != nullptr; }, 1s));
    made->start({.on_closed = [](const Error&) {}});
    sent_ = runtime_.now();
    return made;
  }
  static Frame frame(std::string name, std::size_t bytes) {
    return {.kind = 1, .meta = std::move(name), .payload = {SharedBytes(Buffer::zeroed(bytes))}};
  }

  SimRuntime runtime_;
  SimNetwork network_;
  std::map<SimNodeId, Address> addresses_;
  std::vector<std::shared_ptr<Connection>> ends_;
  std::map<std::string, Duration> arrivals_;
  std::vector<std::string> order_;  // in which they arrived
  std::vector<SharedBytes> payloads_;
  Instant sent_;
  int closed_ = 0;
};

TEST(SimCard, ConnectionsOfANodeShareItAndSmallFramesDoNotWait) {
  Cards cards;
  cards.network_.set_card(1, {.up_bytes_per_second = 1e6, .down_bytes_per_second = 1e6});
  const auto a = cards.connect(1, 2), b = cards.connect(1, 3);
  a->send(Cards::frame("first", 1'000'000));
  b->send(Cards::frame("second", 1'000'000));
  b->send(Cards::frame("third", 1'000));
  cards.connect(1, 4)->send(Cards::frame("small", 1'000));
  cards.runtime_.run_for(10s);
  EXPECT_NEAR(to_seconds(cards.arrivals_.at("first")), 1.0, 0.1);
  EXPECT_NEAR(to_seconds(cards.arrivals_.at("second")), 2.0, 0.1);
  EXPECT_NEAR(to_seconds(cards.arrivals_.at("third")), 2.0, 0.1);  // behind its connection's own
  EXPECT_LT(cards.arrivals_.at("small"), 100ms);
}

TEST(SimCard, TheReceiversCardIsAQueueToo) {
  Cards cards;
  cards.network_.set_card(3, {.up_bytes_per_second = 1e9, .down_bytes_per_second = 1e6});
  const auto a = cards.connect(1, 3), b = cards.connect(2, 3);
  a->send(Cards::frame("first", 500'000));
  b->send(Cards::frame("second", 500'000));
  cards.runtime_.run_for(10s);
  EXPECT_NEAR(to_seconds(cards.arrivals_.at("first")), 0.51, 0.01);
  EXPECT_NEAR(to_seconds(cards.arrivals_.at("second")), 1.01, 0.01);
}

// In half of the frames it is the payload: one bit of the receiver's copy, and nothing else.
TEST(SimDamage, OneBitOfAPayloadChangesOnItsWay) {
  Cards cards;
  const SharedBytes sent(Buffer::zeroed(100));
  cards.network_.damage(1, 1);
  for (int i = 0; i < 40; ++i) {
    Frame frame = Cards::frame(std::to_string(i), 0);
    frame.payload = {sent};
    cards.connect(1, 2)->send(std::move(frame));
  }
  cards.network_.damage(1, 0);
  cards.runtime_.run_for(1s);
  ASSERT_FALSE(cards.payloads_.empty());
  EXPECT_GT(cards.payloads_.size(), 8U);
  EXPECT_LT(cards.payloads_.size(), 32U);
  for (const SharedBytes& payload : cards.payloads_) {
    int bits = 0;
    for (const std::byte byte : payload.view())
      bits += std::popcount(std::to_integer<unsigned>(byte));
    EXPECT_EQ(bits, 1);
  }
  EXPECT_TRUE(std::ranges::all_of(sent.view(), [](std::byte byte) { return byte == std::byte{}; }));
}

TEST(SimBlock, FramesAndEndsAndDialsWaitUntilItIsOpen) {
  Cards cards;
  const auto a = cards.connect(1, 2);
  cards.network_.block(1, 2);
  a->send(Cards::frame("held", 10));
  std::shared_ptr<Connection> dialled;
  cards.network_.node(1).connect(cards.addresses_[2], 10s,
                                 [&](auto connection) { dialled = *connection; });
  bool late = false;
  cards.network_.node(1).connect(cards.addresses_[2], 1s,
                                 [&](auto connection) { late = !connection.has_value(); });
  cards.runtime_.run_for(2s);
  EXPECT_TRUE(cards.arrivals_.empty());
  EXPECT_EQ(dialled, nullptr);
  EXPECT_TRUE(late);
  cards.network_.cut(2, 1);  // the other direction is open: only this end hears of it
  a->close();
  cards.runtime_.run_for(1s);
  cards.network_.unblock(1, 2);
  cards.runtime_.run_for(1s);
  EXPECT_NE(dialled, nullptr);
  EXPECT_GE(cards.closed_, 1);
}

TEST(SimBlock, FramesArriveInOrderOnceItIsOpen) {
  Cards cards;
  const auto a = cards.connect(1, 2);
  a->send(Cards::frame("before", 10));
  cards.network_.block(1, 2);
  a->send(Cards::frame("one", 10));
  a->send(Cards::frame("two", 10));
  cards.runtime_.run_for(1s);
  EXPECT_EQ(cards.arrivals_.size(), 1U);
  cards.network_.unblock(1, 2);
  cards.runtime_.run_for(1s);
  EXPECT_EQ(cards.order_, (std::vector<std::string>{"before", "one", "two"}));
}

}  // namespace
}  // namespace swarmline
