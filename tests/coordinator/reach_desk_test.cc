// Who takes connections, and who is asked to dial whom, over simulated links.
#include "pipeline/coordinator/members/reach_desk.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/net/relay_door.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/protocol_version.h"
#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"
#include "tests/net/open_guard.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Reaching : public ::testing::Test {
 protected:
  // Listens on node 1, and says so from there.
  void listen() {
    const auto bound = bench.network.node(1).listen({"sim", 0}, [this](auto connection) {
      connection->start({.on_frame = [](Frame) {}, .on_closed = [](const Error&) {}});
      taken.push_back(std::move(connection));
    });
    hello.set_address(to_string(*bound));
  }
  SessionPtr comes_from(const std::string& remote) {
    auto& caller = callers.emplace_back(std::make_unique<FakeSession>());
    caller->channel->comes_from(remote);
    caller->channel->prove(KeyHash{});
    return caller->session;
  }
  wire::CallMe call_me(const Seat& beyond) {
    wire::CallMe call;
    *call.mutable_beyond() = to_wire(beyond);
    return call;
  }
  wire::OutOfReach out_of_reach(const Seat& beyond) {
    wire::OutOfReach message;
    *message.mutable_beyond() = to_wire(beyond);
    return message;
  }
  FakeSession& relay_comes(const std::string& name, std::uint32_t links) {
    FakeSession& relay = *callers.emplace_back(std::make_unique<FakeSession>());
    wire::RelayHello hello_of_it;
    hello_of_it.set_protocol(kProtocolVersion);
    hello_of_it.set_name(name);
    hello_of_it.set_address("10.0.0.9:7401");
    hello_of_it.set_links_max(links);
    relays.on_hello(relay.session, make_frame(MessageKind::kRelayHello, hello_of_it),
                    [](const Result<Frame>& said) { EXPECT_TRUE(said.has_value()); });
    bench.flush();
    return relay;
  }
  ReachDesk desk_of(PartsBench& parts) {
    return ReachDesk({.network = parts.network.node(0),
                      .alarms = parts.alarms,
                      .sessions = parts.sessions,
                      .members = parts.members,
                      .relays = relays,
                      .outbox = parts.outbox,
                      .events = parts.events});
  }
  std::size_t said() {
    bench.writer.flush();
    std::size_t count = 0;
    const auto all = bench.store.events(1000);
    for (const EventRecord& event : *all) count += event.kind == "out_of_reach";
    return count;
  }

  std::optional<StageId> place(Reach reach, std::optional<StageId> chosen) {
    return desk_of_wide.place(reach, chosen, wide.shape);
  }

  PartsBench bench;
  PartsBench wide{4};
  RunIdentity identity{.run_id = "run", .key = "a key"};
  RelayDesk relays{identity, bench.alarms, bench.outbox, bench.events};
  ReachDesk desk = desk_of(bench);
  ReachDesk desk_of_wide = desk_of(wide);
  std::vector<std::shared_ptr<Connection>> taken;
  std::vector<std::unique_ptr<FakeSession>> callers;
  wire::Hello hello;
  int known = 0;
};

TEST_F(Reaching, ANewcomerIsAskedOnceAtItsOwnHost) {
  listen();
  const SessionPtr session = comes_from("sim:77");
  EXPECT_FALSE(desk.knows(session, hello, [this] { ++known; }));
  EXPECT_FALSE(desk.knows(session, hello, [this] { ++known; })) << "it is being asked";
  bench.clock.run_for(1s);
  EXPECT_EQ(known, 1);
  EXPECT_EQ(session->reach, Reach::kYes);
  EXPECT_TRUE(desk.knows(session, hello, [] {}));
  EXPECT_EQ(taken.size(), 1U);
}

// A peer may name any address: the coordinator is nobody's port scanner.
TEST_F(Reaching, AnotherHostsAddressIsNeverAsked) {
  listen();
  const SessionPtr session = comes_from("10.0.0.9:5000");
  EXPECT_TRUE(desk.knows(session, hello, [this] { ++known; }));
  EXPECT_EQ(session->reach, Reach::kElsewhere);
  bench.clock.run_for(5s);
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(known, 0);
}

TEST_F(Reaching, WhereLinksHaveNoKeysNobodyIsAsked) {
  listen();
  FakeSession plain;
  plain.channel->comes_from("sim:77");
  EXPECT_TRUE(desk.knows(plain.session, hello, [this] { ++known; }));
  EXPECT_EQ(plain.session->reach, Reach::kUnknown) << "nobody could tell who answers";
  bench.clock.run_for(5s);
  EXPECT_TRUE(taken.empty());
}

TEST_F(Reaching, WhoDoesNotAnswerIsKnownNotToWithinTheProbesTime) {
  listen();
  for (const SimDoor door : {SimDoor::kDrops, SimDoor::kRefuses}) {
    bench.network.set_door(1, door);
    const SessionPtr session = comes_from("sim:77");
    EXPECT_FALSE(desk.knows(session, hello, [this] { ++known; }));
    bench.clock.run_for(knobs().probe_time);
    EXPECT_EQ(session->reach, Reach::kNo);
  }
  EXPECT_EQ(known, 2);
}

// The run's key has changed since the link began: the next one shows the new key.
TEST_F(Reaching, WhoIsToldToComeAgainComesOnceMore) {
  const MarkExpected again("reach.told_to_come_again");
  const auto guard = std::make_shared<OpenGuard>();
  guard->holds = true;
  hello.set_key(to_string(guard->identity().hash()));
  bench.network.set_guard(0, std::make_shared<OpenGuard>());
  bench.network.set_guard(1, guard);
  listen();
  const auto come_again = [&] {
    bench.clock.run_for(100ms);
    ASSERT_EQ(guard->held.size(), 1U);
    std::exchange(guard->held, {}).front()(fail(ErrorCode::kDeadline, "it has another key"));
  };
  const SessionPtr session = comes_from("sim:77");
  EXPECT_FALSE(desk.knows(session, hello, [this] { ++known; }));
  come_again();
  guard->holds = false;
  bench.clock.run_for(100ms);
  EXPECT_EQ(session->reach, Reach::kYes);
  EXPECT_EQ(taken.size(), 1U);

  guard->holds = true;
  const SessionPtr another = comes_from("sim:78");
  EXPECT_FALSE(desk.knows(another, hello, [this] { ++known; }));
  come_again();
  come_again();
  bench.clock.run_for(100ms);
  EXPECT_EQ(another->reach, Reach::kNo) << "once";
  EXPECT_TRUE(guard->held.empty());
  EXPECT_EQ(known, 2);
}

TEST_F(Reaching, WhoComesBackToItsAddressIsNotAskedAgain) {
  listen();
  Member& before = bench.members.at(bench.members.join(hello, StageId{0})->peer);
  before.reach = Reach::kNo;
  *hello.mutable_previous() = to_wire(before.seat);
  bench.members.fence(before.seat);
  const SessionPtr session = comes_from("sim:77");
  EXPECT_TRUE(desk.knows(session, hello, [] {}));
  EXPECT_EQ(session->reach, Reach::kNo);
}

TEST_F(Reaching, HostsAreComparedAsTheyAreSeen) {
  const auto from = [&](const std::string& remote) {
    return comes_from(remote)->channel->connection().remote();
  };
  EXPECT_EQ(from("[::ffff:10.0.0.2]:5"), "[::ffff:10.0.0.2]:5");
  const auto own = [&](const std::string& address, const std::string& remote) {
    return is_own_address(address, comes_from(remote)->channel->connection());
  };
  EXPECT_TRUE(own("10.0.0.2:7400", "10.0.0.2:51000"));
  EXPECT_TRUE(own("10.0.0.2:7400", "[::ffff:10.0.0.2]:51000"));
  EXPECT_TRUE(own("[fd00::1]:7400", "[fd00::1]:51000"));
  EXPECT_FALSE(own("10.0.0.3:7400", "10.0.0.2:51000"));
  EXPECT_FALSE(own("nowhere", "10.0.0.2:51000"));
}

TEST_F(Reaching, ACallIsPassedOnAndItsFailureToWhoAsked) {
  const Seat a = bench.seated(0), b = bench.seated(0);
  desk.on_call_me(a, call_me(b));
  const auto calls = bench.told<wire::Call>(b, MessageKind::kCall);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(from_wire(calls[0].to()), a);
  EXPECT_EQ(calls[0].address(), bench.members.at(a.peer).address);
  EXPECT_FALSE(desk.are_apart(a.peer, b.peer));
  desk.on_out_of_reach(b, out_of_reach(a));
  const auto answers = bench.told<wire::OutOfReach>(a, MessageKind::kOutOfReach);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(from_wire(answers[0].beyond()), b);
  EXPECT_TRUE(desk.are_apart(a.peer, b.peer) && desk.are_apart(b.peer, a.peer));
  bench.clock.run_for(knobs().apart_time);
  EXPECT_FALSE(desk.are_apart(a.peer, b.peer)) << "by then they may be";
}

TEST_F(Reaching, TwoThatNobodyReachesMeetAtTheRelayWithMostRoom) {
  const Seat a = bench.seated(0), b = bench.seated(0);
  relay_comes("small", 1);
  const FakeSession& large = relay_comes("large", 4);
  bench.members.at(a.peer).reach = Reach::kNo;
  desk.on_call_me(a, call_me(b));
  EXPECT_EQ(bench.count(b, MessageKind::kCall), 1U) << "one of the two takes connections";
  bench.members.at(b.peer).reach = Reach::kNo;
  desk.on_call_me(a, call_me(b));
  const auto of_a = bench.told<wire::Meet>(a, MessageKind::kMeet);
  const auto of_b = bench.told<wire::Meet>(b, MessageKind::kMeet);
  ASSERT_EQ(of_a.size(), 1U);
  ASSERT_EQ(of_b.size(), 1U);
  EXPECT_TRUE(of_a[0].dials() && !of_b[0].dials());
  EXPECT_EQ(from_wire(of_a[0].to()), b);
  EXPECT_EQ(from_wire(of_b[0].to()), a);
  EXPECT_EQ(of_a[0].relay(), "10.0.0.9:7401");
  EXPECT_EQ(of_a[0].ticket(), of_b[0].ticket());
  EXPECT_EQ(of_a[0].ticket().size(), kRelayTicketBytes);
  ASSERT_EQ(large.kinds().size(), 1U);
  EXPECT_EQ(parse<wire::RelayTicket>(large.channel->said[0])->ticket(), of_a[0].ticket());
}

TEST_F(Reaching, ARelayIsUsedAfterACallHasFailedToo) {
  const Seat a = bench.seated(0), b = bench.seated(0);
  relay_comes("relay", 1);
  desk.on_call_me(a, call_me(b));
  desk.on_out_of_reach(b, out_of_reach(a));
  EXPECT_EQ(bench.count(a, MessageKind::kMeet), 1U);
  EXPECT_EQ(bench.count(a, MessageKind::kOutOfReach), 0U);
  desk.on_call_me(b, call_me(a));
  EXPECT_EQ(bench.count(a, MessageKind::kCall), 1U) << "the relay is full: they try it again";
}

TEST_F(Reaching, ARelayIsTakenOnceAndForgottenWhenItIsGone) {
  const FakeSession& relay = relay_comes("relay", 2);
  EXPECT_TRUE(relays.has(relay.session));
  std::optional<Result<Frame>> answer;
  wire::RelayHello other;
  other.set_protocol(kProtocolVersion + 1);
  other.set_address("10.0.0.9:7401");
  FakeSession& newer = *callers.emplace_back(std::make_unique<FakeSession>());
  relays.on_hello(newer.session, make_frame(MessageKind::kRelayHello, other),
                  [&](Result<Frame> said) { answer = std::move(said); });
  bench.flush();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->error().code, ErrorCode::kRefused);
  EXPECT_NE(answer->error().what.find("its swarmline is newer"), std::string::npos);
  wire::RelayState state;
  state.set_links(2);
  state.set_bytes(77);
  relays.on_message(relay.session, make_frame(MessageKind::kRelayState, state));
  EXPECT_EQ(relays.relays()[0].bytes, 77U);
  EXPECT_FALSE(relays.meet().has_value()) << "it has no room";
  relays.on_closed(relay.session);
  EXPECT_FALSE(relays.any());
}

// A bench of four stages with one peer wanted at each.
TEST_F(Reaching, WhoNobodyReachesSitsWhereItNeedsNobodyElseWhomNobodyReaches) {
  const MarkExpected placed("reach.placed_where_it_is_met");
  const Seat first = wide.seated(1);
  EXPECT_EQ(place(Reach::kNo, {}), std::nullopt) << "nobody else is out of reach";
  wide.members.at(first.peer).reach = Reach::kNo;
  EXPECT_EQ(place(Reach::kNo, {}), StageId{3}) << "0 and 2 have links to it";
  EXPECT_EQ(place(Reach::kNo, StageId{2}), StageId{3});
  EXPECT_EQ(place(Reach::kNo, StageId{3}), StageId{3});
  EXPECT_EQ(place(Reach::kYes, {}), std::nullopt) << "one that is reached sits anywhere";
  EXPECT_EQ(place(Reach::kYes, StageId{2}), StageId{2});
  wide.seated(3);
  EXPECT_EQ(place(Reach::kNo, StageId{2}), StageId{2}) << "no stage that lacks a peer is better";
  relay_comes("relay", 1);
  EXPECT_EQ(place(Reach::kNo, {}), std::nullopt) << "with a relay all meet";
}

TEST_F(Reaching, WhoSaysItWithoutACallSaysNothing) {
  const Seat a = bench.seated(0), b = bench.seated(0);
  desk.on_out_of_reach(b, out_of_reach(a));
  EXPECT_FALSE(desk.are_apart(a.peer, b.peer));
  EXPECT_EQ(bench.count(a, MessageKind::kOutOfReach), 0U);
}

TEST_F(Reaching, NobodyIsCalledForWhoIsGoneOrAsksTooOften) {
  const Seat a = bench.seated(0), b = bench.seated(0), c = bench.seated(0);
  const SeatLoss lost = bench.lost(b);
  desk.on_seat_lost(lost);
  desk.on_call_me(a, call_me(b));
  EXPECT_EQ(bench.count(a, MessageKind::kOutOfReach), 1U);
  desk.on_call_me(a, call_me(a));
  EXPECT_EQ(bench.count(a, MessageKind::kOutOfReach), 2U);
  const Seat cut_off = bench.seated(1);
  bench.sessions.closed(bench.sessions.of(cut_off.peer));
  desk.on_call_me(a, call_me(cut_off));
  EXPECT_EQ(bench.count(a, MessageKind::kOutOfReach), 3U) << "nobody can tell it now";
  const MarkExpected often("reach.asks_too_often");
  for (std::uint32_t i = 0; i < 2 * ReachDesk::kCallsMax; ++i) desk.on_call_me(a, call_me(c));
  EXPECT_EQ(bench.count(c, MessageKind::kCall), ReachDesk::kCallsMax);
  bench.clock.run_for(1s);
  desk.on_call_me(a, call_me(c));
  EXPECT_EQ(bench.count(c, MessageKind::kCall), ReachDesk::kCallsMax + 1);
}

TEST_F(Reaching, PairsOutOfReachAreSaidOnceAMinute) {
  const Seat a = bench.seated(0), b = bench.seated(0);
  bench.clock.run_for(1s);
  for (int i = 0; i < 600; ++i) {
    desk.on_call_me(a, call_me(b));
    desk.on_out_of_reach(b, out_of_reach(a));
    bench.clock.run_for(200ms);
  }
  EXPECT_EQ(said(), 2U) << "in two minutes";
}

}  // namespace
}  // namespace swarmline
