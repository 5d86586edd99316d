// Two ends that meet at a relay, over loopback TCP: what one says the other hears, sealed where
// they have keys; who has no ticket, or comes when all is taken, is not let in.
#include "engine/net/tcp/tcp_relay.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "tests/harness/mark_expected.h"
#include "tests/net/open_guard.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

const std::string kTicket(kRelayTicketBytes, 't'), kOther(kRelayTicketBytes, 'o');

struct End {
  explicit End(AsioRuntime& runtime, std::shared_ptr<LinkGuard> guard = nullptr)
      : network(runtime, {.guard = std::move(guard)}) {}
  void meet(const Address& relay, const std::string& ticket, bool dials) {
    network.meet({.relay = relay, .ticket = ticket, .dials = dials}, 5s,
                 [this](Result<std::shared_ptr<Connection>> made) {
                   ++answers;
                   if (!made) {
                     error = made.error();
                     return;
                   }
                   link = *made;
                   link->start({.on_frame = [this](Frame frame) { heard.push_back(frame); },
                                .on_closed = [this](const Error&) { closed = true; }});
                   link->believe({});
                 });
  }
  TcpNetwork network;
  std::shared_ptr<Connection> link;
  std::vector<Frame> heard;
  std::optional<Error> error;
  int answers = 0;
  bool closed = false;
};

Frame frame_of(std::uint16_t kind, std::size_t payload = 0) {
  Frame frame;
  frame.kind = kind;
  frame.meta = "meta";
  if (payload > 0) frame.payload.emplace_back(Buffer(payload));
  return frame;
}

class Relayed : public ::testing::Test {
 protected:
  void open(RelayBounds bounds = {}) {
    relay_.emplace(runtime_, bounds);
    at_ = *relay_->listen({"127.0.0.1", 0});
  }
  bool run_until(const std::function<bool()>& done, Duration most = 20s) {
    return runtime_.run_until(done, most);
  }
  void join(End& one, End& other, const std::string& ticket = kTicket) {
    ASSERT_TRUE(relay_->expect(ticket));
    one.meet(at_, ticket, true);
    other.meet(at_, ticket, false);
    ASSERT_TRUE(run_until([&] { return one.link && other.link; }));
    EXPECT_TRUE(one.link->is_relayed() && other.link->is_relayed());
  }

  AsioRuntime runtime_;
  std::optional<TcpRelay> relay_;
  Address at_;
};

TEST_F(Relayed, WhatOneEndSaysTheOtherHearsAndTheBytesAreCounted) {
  open();
  End one(runtime_), other(runtime_);
  join(one, other);
  for (std::uint16_t i = 0; i < 100; ++i) {
    one.link->send(frame_of(i, 100'000));
    other.link->send(frame_of(i));
  }
  ASSERT_TRUE(run_until([&] { return other.heard.size() == 100 && one.heard.size() == 100; }));
  for (std::uint16_t i = 0; i < 100; ++i) EXPECT_EQ(other.heard[i].kind, i);
  EXPECT_EQ(other.heard[99].received_payload().size(), 100'000U);
  EXPECT_EQ(relay_->counters().links, 1U);
  EXPECT_GE(relay_->counters().bytes, 10'000'000U);
}

TEST_F(Relayed, EndsWithKeysKnowEachOtherAndNotTheRelay) {
  open();
  const auto guard_of_one = std::make_shared<OpenGuard>();
  const auto guard_of_other = std::make_shared<OpenGuard>();
  End one(runtime_, guard_of_one), other(runtime_, guard_of_other);
  join(one, other);
  EXPECT_EQ(one.link->peer_key(), guard_of_other->identity().hash());
  EXPECT_EQ(other.link->peer_key(), guard_of_one->identity().hash());
  EXPECT_EQ(one.link->admitted_as(), "listener");
  one.link->send(frame_of(7, 1'000'000));
  ASSERT_TRUE(run_until([&] { return other.heard.size() == 1; }));
}

TEST_F(Relayed, AnEndThatIsGoneEndsTheLinkOfTheOther) {
  open();
  auto one = std::make_unique<End>(runtime_);
  End other(runtime_);
  join(*one, other);
  one.reset();
  ASSERT_TRUE(run_until([&] { return other.closed; }));
  ASSERT_TRUE(run_until([&] { return relay_->counters().links == 0; }));
}

TEST_F(Relayed, NobodyIsJoinedWithoutATicketNorTwice) {
  open();
  const MarkExpected refused("relay.no_ticket");
  End stranger(runtime_), one(runtime_), other(runtime_), late(runtime_);
  stranger.meet(at_, kOther, true);
  ASSERT_TRUE(run_until([&] { return stranger.answers == 1; }));
  EXPECT_EQ(stranger.error->code, ErrorCode::kDeadline);
  join(one, other);
  late.meet(at_, kTicket, true);
  ASSERT_TRUE(run_until([&] { return late.answers == 1; })) << "a ticket is good once";
  EXPECT_FALSE(late.link);
  EXPECT_EQ(relay_->counters().not_taken, 2U);
}

TEST_F(Relayed, OfLinksAndTicketsThereAreSoMany) {
  open({.links_max = 1});
  End one(runtime_), other(runtime_), third(runtime_), fourth(runtime_);
  join(one, other);
  ASSERT_TRUE(relay_->expect(kOther));
  EXPECT_FALSE(relay_->expect(std::string(kRelayTicketBytes, 'x')));
  EXPECT_FALSE(relay_->expect("short"));
  third.meet(at_, kOther, true);
  fourth.meet(at_, kOther, false);
  ASSERT_TRUE(run_until([&] { return third.answers == 1 && fourth.answers == 1; }));
  EXPECT_FALSE(third.link || fourth.link);
  one.link->send(frame_of(1));
  EXPECT_TRUE(run_until([&] { return other.heard.size() == 1; })) << "the first link stands";
}

// Whoever comes alone hears it in time: by its own patience.
TEST_F(Relayed, WhoComesAloneIsNotJoined) {
  open();
  End alone(runtime_);
  ASSERT_TRUE(relay_->expect(kTicket));
  alone.network.meet({.relay = at_, .ticket = kTicket, .dials = true}, 200ms,
                     [&](const Result<std::shared_ptr<Connection>>& made) {
                       ++alone.answers;
                       EXPECT_FALSE(made.has_value());
                     });
  ASSERT_TRUE(run_until([&] { return alone.answers == 1; }));
}

TEST_F(Relayed, WhoWaitsAloneHearsOfItWhenTheTicketIsOver) {
  open({.ticket_life = 100ms});
  End alone(runtime_);
  ASSERT_TRUE(relay_->expect(kTicket));
  alone.network.meet({.relay = at_, .ticket = kTicket, .dials = true}, 10min,
                     [&](const Result<std::shared_ptr<Connection>>& made) {
                       ++alone.answers;
                       EXPECT_FALSE(made.has_value());
                     });
  ASSERT_TRUE(run_until([&] { return alone.answers == 1; }));
  EXPECT_EQ(relay_->counters().not_taken, 1U);
}

TEST_F(Relayed, WhoSaysNothingGivesWayToOthers) {
  open({.links_max = 2});
  const MarkExpected crowded("relay.crowded_out");
  std::vector<std::unique_ptr<TcpNetwork>> silent;
  std::vector<std::shared_ptr<Connection>> held;
  for (int i = 0; i < 24; ++i) {
    silent.push_back(std::make_unique<TcpNetwork>(runtime_, TcpOptions()));
    silent.back()->connect(at_, 5s, [&](Result<std::shared_ptr<Connection>> made) {
      if (made) held.push_back(*made);
    });
  }
  ASSERT_TRUE(run_until([&] { return relay_->counters().not_taken >= 2; }));
  End one(runtime_), other(runtime_);
  join(one, other);
}

TEST_F(Relayed, BytesPassAtTheRateThatItsOwnerSets) {
  constexpr double kRate = 4e6;
  open({.bytes_per_second = kRate});
  End one(runtime_), other(runtime_);
  join(one, other);
  const Instant began = runtime_.now();
  for (int i = 0; i < 40; ++i) one.link->send(frame_of(1, 100'000));
  ASSERT_TRUE(run_until([&] { return other.heard.size() == 40; }));
  const double seconds = to_seconds(runtime_.now() - began);
  // One buffer of each way may go before its time has come.
  EXPECT_GE(seconds, (4e6 - 2 * RelayBounds().buffer_bytes) / kRate);
}

}  // namespace
}  // namespace swarmline
