// Who sits where, who is told of it, and who is forgotten.
#include "pipeline/coordinator/members/membership.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/units.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

wire::Hello hello(const std::string& address) {
  wire::Hello hello;
  hello.set_address(address);
  return hello;
}

TEST(Membership, SeatsFillTheStagesEvenlyAndFormWhenAllAreReady) {
  Membership membership({2, 1});
  std::map<StageId, int> seats;
  std::vector<Seat> joined;
  for (int i = 0; i < 3; ++i) {
    const auto seat = membership.join(hello("a"));
    ASSERT_TRUE(seat.has_value());
    ++seats[seat->stage];
    joined.push_back(*seat);
    EXPECT_FALSE(membership.formed());
  }
  EXPECT_EQ(seats[StageId{0}], 2);
  EXPECT_EQ(seats[StageId{1}], 1);
  for (const Seat& seat : joined) {
    EXPECT_FALSE(membership.formed());
    membership.become(seat.peer, MemberState::kReady);
  }
  EXPECT_TRUE(membership.formed());
  // One more that still builds its stage is beyond those wanted.
  ASSERT_TRUE(membership.join(hello("b")).has_value());
  EXPECT_TRUE(membership.formed());
}

TEST(Membership, APeerSitsWhereItsMemoryIsEnough) {
  Membership membership({2, 2}, false, {100 * kMiB, 10 * kMiB});
  wire::Hello small = hello("a");
  small.set_memory_bytes(50 * kMiB);
  EXPECT_EQ(membership.join(small)->stage, StageId{1});
  EXPECT_EQ(membership.join(small)->stage, StageId{1}) << "the other is empty, and too large";
  EXPECT_EQ(membership.join(hello("b"))->stage, StageId{0}) << "it sets no limit";
  small.set_memory_bytes(9 * kMiB);
  const auto refused = membership.join(small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_EQ(
      refused.error().what,
      "the peer may use 9.0 MiB of memory (peer.memory_bytes), and every stage needs 10.0 MiB "
      "at least");
}

wire::Hello hello_from(const std::string& zone, const std::string& address) {
  wire::Hello said = hello(address);
  said.set_zone(zone);
  return said;
}

TEST(Membership, MemoryForMoreIsThereWhereEverybodySaysSo) {
  const auto with = [](std::uint64_t memory) {
    wire::Hello said = hello("a");
    said.set_memory_bytes(memory);
    return said;
  };
  const auto serving = [&](std::vector<std::uint64_t> needed, std::vector<std::uint64_t> has) {
    Membership membership({1, 1}, false, std::move(needed));
    for (const std::uint64_t memory : has) {
      const auto seat = membership.join(with(memory));
      EXPECT_TRUE(seat.has_value());
      membership.become(seat->peer, MemberState::kReady);
    }
    return membership.all_have_memory_for(2);
  };
  EXPECT_TRUE(serving({10, 5}, {20, 10}));
  EXPECT_FALSE(serving({10, 5}, {20, 9}));
  EXPECT_FALSE(serving({10, 5}, {20, 0})) << "one that says nothing";
  EXPECT_FALSE(serving({}, {20, 20})) << "nobody knows what a stage needs";
}

TEST(Membership, AStageGetsItsSecondPeerFromAnotherZone) {
  Membership membership({2, 2});
  const Seat first = *membership.join(hello_from("a", "10.0.0.1:1"));
  const Seat second = *membership.join(hello_from("b", "10.0.0.2:1"));
  EXPECT_EQ(membership.join(hello_from("a", "10.0.0.3:1"))->stage, second.stage);
  EXPECT_EQ(membership.join(hello_from("b", "10.0.0.4:1"))->stage, first.stage);
  membership.check_invariants();
}

TEST(Membership, WithoutZonesAnotherMachineIsTaken) {
  Membership membership({2, 2});
  ASSERT_EQ(membership.join(hello("10.0.0.1:1"))->stage, StageId{0});
  ASSERT_EQ(membership.join(hello("10.0.0.2:1"))->stage, StageId{1});
  EXPECT_EQ(membership.join(hello("10.0.0.1:2"))->stage, StageId{1});
}

// The journal has no zones: who goes on at its seat says its own again.
TEST(Membership, WhoIsBackHasItsZoneAgain) {
  Membership membership({2, 2});
  Membership before({2, 2});
  const Seat seat = *before.join(hello_from("a", "10.0.0.1:1"));
  membership.restore(record_of(before.at(seat.peer), "active"), true);
  wire::Hello back = hello_from("a", "10.0.0.9:1");
  *back.mutable_previous() = to_wire(seat);
  membership.resume(back);
  membership.check_invariants();
  EXPECT_EQ(membership.at(seat.peer).at, (Location{.zone = "a", .host = "10.0.0.9"}));
  membership.set_draining(seat.peer, true);
  membership.fence(seat);
  membership.check_invariants();
}

TEST(Membership, OnlyTheCurrentSeatCounts) {
  Membership membership({1});
  const Seat seat = *membership.join(hello("a"));
  EXPECT_TRUE(membership.is_current(seat));
  EXPECT_FALSE(membership.is_current({seat.peer, seat.stage, Incarnation{2}}));
  EXPECT_FALSE(membership.is_current({PeerId{9}, seat.stage, seat.incarnation}));
  membership.fence(seat);
  EXPECT_FALSE(membership.is_current(seat));
}

// Where each answer to it is damaged on its way, a peer asks again and again: it would be another
// one each time, and two hundred of them thousands within a minute.
TEST(Membership, WhoNeverHeardOfItsLatestSeatIsStillThatPeer) {
  const MarkExpected lost("membership.welcome_was_lost");
  Membership membership({1});
  wire::Hello again = hello("a");
  again.set_name("one");
  const Seat first = *membership.join(again);
  membership.fence(first);
  *again.mutable_previous() = to_wire(first);
  for (std::uint32_t i = 2; i < 10; ++i) {
    const Seat unheard = *membership.join(again);
    EXPECT_EQ(unheard, (Seat{first.peer, first.stage, Incarnation{i}}));
    membership.fence(unheard);
  }
  EXPECT_EQ(membership.members().size(), 1U);
  wire::Hello other = again;
  other.set_name("two");
  EXPECT_NE(membership.join(other)->peer, first.peer);
  other = again;
  other.mutable_previous()->set_incarnation(1000);
  EXPECT_NE(membership.join(other)->peer, first.peer) << "nobody gave it that";
}

// A seat is its key's: a name is anybody's to say.
TEST(Membership, WhoHasNotTheKeyOfASeatHasNotHadIt) {
  Membership membership({1});
  wire::Hello owner = hello("a");
  owner.set_name("one");
  owner.set_key("key of one");
  const Seat seat = *membership.join(owner);
  membership.fence(seat);
  *owner.mutable_previous() = to_wire(seat);
  wire::Hello thief = owner;
  for (const char* key : {"another key", ""}) {
    thief.set_key(key);
    EXPECT_EQ(membership.former(thief), nullptr) << key;
    EXPECT_NE(membership.join(thief)->peer, seat.peer) << key;
  }
  ASSERT_NE(membership.former(owner), nullptr);
  EXPECT_EQ(membership.join(owner)->peer, seat.peer);
}

TEST(Membership, TheJournalKnowsWhoseKeyASeatIs) {
  Membership membership({1});
  const Seat seat{PeerId{4}, StageId{0}, Incarnation{2}};
  membership.restore({.seat = seat, .address = "a", .state = "fenced", .key = "its key"}, false);
  wire::Hello again = hello("a");
  *again.mutable_previous() = to_wire(seat);
  EXPECT_EQ(membership.former(again), nullptr);
  again.set_key("its key");
  EXPECT_NE(membership.former(again), nullptr);
}

TEST(Membership, TheJournalKnowsWhoTakesConnections) {
  for (const Reach reach : {Reach::kUnknown, Reach::kElsewhere, Reach::kYes, Reach::kNo}) {
    Membership before({1});
    const Seat seat = *before.join(hello("a"));
    before.at(seat.peer).reach = reach;
    const SeatRecord record = record_of(before.at(seat.peer), "active");
    EXPECT_EQ(record.reach, reach == Reach::kUnknown ? "" : to_string(reach));
    Membership after({1});
    after.restore(record, true);
    EXPECT_EQ(after.at(seat.peer).reach, reach);
  }
  EXPECT_EQ(reach_from("of a later version"), Reach::kUnknown);
}

// What counts for others is measured, too: of one that is too slow for any of its work to count,
// and of one that was given what a mate had computed.
TEST(Membership, WhatWasComputedIsMeasuredWhoeverOwnsIt) {
  Membership membership({1});
  const Seat seat = *membership.join(hello("a"));
  const auto seconds = [&] { return membership.at(seat.peer).seconds_per_microbatch; };
  const auto ns = [](Duration busy) { return static_cast<std::uint64_t>(busy.count()); };
  membership.measured(seat, ns(2s), 0);
  EXPECT_EQ(seconds(), 0);
  membership.measured(seat, ns(12s), 4 * kPassesOfAMicrobatch);
  EXPECT_DOUBLE_EQ(seconds(), 3);
  membership.measured(seat, 0, 0);
  EXPECT_DOUBLE_EQ(seconds(), 3);
  for (int step = 0; step < 30; ++step) membership.measured(seat, ns(100s), 1);
  EXPECT_NEAR(seconds(), 100 * kPassesOfAMicrobatch, 1);
  for (int step = 0; step < 30; ++step)
    membership.measured(seat, ns(12s), 4 * kPassesOfAMicrobatch);
  EXPECT_NEAR(seconds(), 3, 0.1);
}

std::size_t mates_in(const wire::Membership& view) {
  return view.rosters_size() == 0 ? 0 : static_cast<std::size_t>(view.rosters(0).members_size());
}

std::vector<Seat> seat_ready(Membership& membership, int peers) {
  std::vector<Seat> seats;
  for (int i = 0; i < peers; ++i) {
    seats.push_back(*membership.join(hello("host:" + std::to_string(i + 1))));
    membership.become(seats.back().peer, MemberState::kReady);
  }
  return seats;
}

TEST(Membership, AViewNamesItsStageAndTheNextWithinItsBound) {
  Membership membership({2, 40});
  seat_ready(membership, 42);
  const std::vector<Seat> first = membership.ready_of(StageId{0}),
                          second = membership.ready_of(StageId{1});
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(membership.refresh_views().size(), 42U);
  EXPECT_TRUE(membership.refresh_views().empty());
  std::set<std::uint32_t> known;
  for (const Seat& seat : first) {
    const wire::Membership view = membership.view_for(seat);
    EXPECT_EQ(mates_in(view), 2U);
    EXPECT_EQ(view.next_size(), Limits::next_candidates_max);
    for (const auto& info : view.next()) {
      EXPECT_EQ(info.seat().stage(), 1U);
      EXPECT_FALSE(info.address().empty());
      EXPECT_TRUE(known.insert(info.seat().peer()).second)
          << "both senders know the same ones and others nobody";
    }
  }
  EXPECT_EQ(membership.view_for(second.front()).next_size(), 0);
  EXPECT_EQ(mates_in(membership.view_for(second.front())), 40U);
  // Its mates, and whoever sent to it.
  membership.fence(second.front());
  const std::set<Seat> changed = membership.refresh_views();
  EXPECT_EQ(changed.size(), 40U);
  EXPECT_EQ(changed.contains(first[0]) + changed.contains(first[1]), 1);
  EXPECT_EQ(mates_in(membership.view_for(second.back())), 39U);
}

TEST(Membership, WhatItsMembersCostFollowsThem) {
  using Sums = PriceTally::Sums;
  Membership membership({2});
  const auto sums = [&] {
    membership.check_invariants();
    return membership.prices().sums();
  };
  std::vector<Seat> seats;
  for (const double price : {0.5, 0.5, 0.25, 0.0}) {
    wire::Hello peer = hello("host" + std::to_string(seats.size()) + ":1");
    peer.set_price(price);
    seats.push_back(*membership.join(peer, StageId{0}));
  }
  EXPECT_EQ(sums(), (Sums{.joining = 1.25, .unpriced = 1}));
  for (const Seat& seat : seats) membership.become(seat.peer, MemberState::kReady);
  membership.become(seats[2].peer, MemberState::kEarly);
  EXPECT_EQ(sums(), (Sums{.serving = 1.25, .unpriced = 1}));
  membership.become(seats[1].peer, MemberState::kFollowing);
  EXPECT_EQ(sums(), (Sums{.serving = 0.75, .joining = 0.5, .unpriced = 1}));
  membership.fence(seats[0]);
  membership.become(seats[3].peer, MemberState::kAway);
  EXPECT_EQ(sums(), (Sums{.serving = 0.25, .joining = 0.5}));
}

// ---- Zones --------------------------------------------------------------------------------------

std::vector<Seat> seat_in_zones(Membership& membership, const std::string& zones,
                                double egress_price) {
  std::vector<Seat> seats;
  for (const char zone : zones) {
    wire::Hello peer = hello("host" + std::to_string(seats.size()) + ":1");
    peer.set_zone(std::string(1, zone));
    peer.set_egress_price(egress_price);
    const auto stage = static_cast<std::uint16_t>(seats.size() * 2 / zones.size());
    seats.push_back(*membership.join(peer, StageId{stage}));
    membership.become(seats.back().peer, MemberState::kReady);
  }
  return seats;
}
std::map<PeerId, double> weights_in(const wire::Membership& view) {
  std::map<PeerId, double> weights;
  for (const wire::PeerInfo& info : view.next())
    weights[PeerId{info.seat().peer()}] = info.weight();
  return weights;
}

TEST(Membership, WhereBytesCostAViewWeighsThoseOfItsZone) {
  for (const bool pays : {false, true}) {
    Membership membership({2, 2});
    membership.keep_in_zones(/*run_pays=*/false);
    const std::vector<Seat> seats = seat_in_zones(membership, "abab", pays ? 0.09 : 0);
    membership.refresh_views();
    const auto of_a = weights_in(membership.view_for(seats[0]));
    ASSERT_EQ(of_a.size(), 2U);
    EXPECT_EQ(of_a.at(seats[2].peer), pays ? 2 : 0) << "the other one of a";
    EXPECT_EQ(of_a.at(seats[3].peer), pays ? kZoneWeightMin : 0);
    EXPECT_EQ(weights_in(membership.view_for(seats[1])).at(seats[3].peer), pays ? 2 : 0);
    EXPECT_FALSE(membership.shares_are_stale());
  }
  Membership left_alone({2, 2});
  const std::vector<Seat> seats = seat_in_zones(left_alone, "abab", 0.09);
  left_alone.refresh_views();
  EXPECT_EQ(weights_in(left_alone.view_for(seats[0])).at(seats[2].peer), 0);
}

TEST(Membership, ZonesAreWeighedAnewWhenSomebodyGoesOrSpeedsAreOthers) {
  Membership membership({2, 2});
  membership.keep_in_zones(/*run_pays=*/true);
  const std::vector<Seat> seats = seat_in_zones(membership, "abab", 0);
  const MarkExpected weighed("membership.zones_weighed");
  membership.refresh_views();
  for (const Seat& seat : seats) membership.news_for(seat);
  // Its device turns out to be three times as slow as the other one's.
  membership.measured(seats[2], 3'000'000'000, 30);
  membership.measured(seats[3], 1'000'000'000, 30);
  ASSERT_TRUE(membership.shares_are_stale());
  EXPECT_TRUE(membership.refresh_views().contains(seats[0]));
  EXPECT_FALSE(membership.shares_are_stale());
  wire::Membership news = membership.news_for(seats[0]);
  EXPECT_FALSE(news.same_next());
  // Half of all is a's, a quarter stays: the rest is b's, which takes three quarters.
  EXPECT_NEAR(weights_in(news).at(seats[2].peer), 0.25 / (0.5 * 0.25), 1e-9);
  EXPECT_NEAR(weights_in(news).at(seats[3].peer), 0.25 / (0.5 * 0.75), 1e-9);

  membership.fence(seats[2]);
  membership.refresh_views();
  news = membership.news_for(seats[0]);
  EXPECT_EQ(weights_in(news), (std::map<PeerId, double>{{seats[3].peer, 0}})) << "as speeds say";
}

// However many they are, a change costs each of them a line.
TEST(Membership, WhoHasAListIsToldWhatChanges) {
  Membership membership({40});
  const std::vector<Seat> seats = seat_ready(membership, 40);
  membership.refresh_views();
  for (const Seat& seat : seats) EXPECT_EQ(mates_in(membership.news_for(seat)), 40U);
  EXPECT_EQ(membership.news_for(seats[1]).rosters_size(), 0) << "nothing is new";
  membership.fence(seats[0]);
  const Seat newcomer = seat_ready(membership, 1).front();
  membership.refresh_views();
  const wire::Membership news = membership.news_for(seats[1]);
  EXPECT_TRUE(news.same_next());
  ASSERT_EQ(news.rosters_size(), 1);
  EXPECT_EQ(news.rosters(0).base(), 1U);
  ASSERT_EQ(news.rosters(0).members_size(), 1);
  EXPECT_EQ(from_wire(news.rosters(0).members(0).seat()), newcomer);
  ASSERT_EQ(news.rosters(0).gone_size(), 1);
  EXPECT_EQ(from_wire(news.rosters(0).gone(0)), seats[0]);
  EXPECT_EQ(mates_in(membership.news_for(newcomer)), 40U) << "it has no list yet";
}

// Somebody who was not told of one change gets all of the next list.
TEST(Membership, AListWithoutItsBaseIsSaidWhole) {
  Membership membership({3});
  const std::vector<Seat> seats = seat_ready(membership, 3);
  membership.refresh_views();
  membership.news_for(seats[0]);
  membership.fence(seats[1]);
  membership.refresh_views();
  EXPECT_FALSE(membership.rosters().has(seats[0], StageId{0}));
  membership.fence(seats[2]);
  membership.refresh_views();
  const wire::Membership news = membership.news_for(seats[0]);
  EXPECT_EQ(news.rosters(0).base(), 0U);
  EXPECT_EQ(mates_in(news), 1U);
  EXPECT_TRUE(membership.rosters().has(seats[0], StageId{0}));
}

TEST(Membership, ThoseWhoShareAnEmbeddingHearOfEachOther) {
  Membership membership({1, 1, 1}, true);
  const std::vector<Seat> seats = seat_ready(membership, 3);
  membership.refresh_views();
  EXPECT_EQ(membership.view_for(seats[0]).rosters_size(), 2);
  EXPECT_EQ(membership.view_for(seats[1]).rosters_size(), 1);
  const Seat newcomer = *membership.join(hello("new"), StageId{2});
  membership.become(newcomer.peer, MemberState::kReady);
  const std::set<Seat> changed = membership.refresh_views();
  EXPECT_TRUE(changed.contains(seats[0]));
  EXPECT_EQ(membership.news_for(seats[0]).rosters(0).stage(), 2U);
}

// A run outlives any number of processes.
TEST(Membership, OfThoseThatWentTheLastAreKept) {
  Knobs few;
  few.lost_peers_kept = 2;
  const TurnedKnobs turned(few);
  Membership membership({4});
  const std::vector<Seat> seats = seat_ready(membership, 4);
  for (const int gone : {1, 0, 2}) membership.fence(seats[static_cast<std::size_t>(gone)]);
  ASSERT_EQ(membership.long_gone(), seats[1].peer);
  membership.forget(seats[1].peer);
  EXPECT_EQ(membership.long_gone(), std::nullopt);
  EXPECT_FALSE(membership.is_current(seats[1]));
  // One that is kept gets its number back, and makes room for another.
  wire::Hello back = hello("host:1");
  *back.mutable_previous() = to_wire(seats[0]);
  const Seat again = *membership.join(back);
  EXPECT_EQ(again.peer, seats[0].peer);
  EXPECT_EQ(again.incarnation, Incarnation{2});
  // One that is forgotten is new, and gets nobody's number.
  wire::Hello forgotten = hello("host:2");
  *forgotten.mutable_previous() = to_wire(seats[1]);
  const Seat fresh = *membership.join(forgotten);
  EXPECT_GT(fresh.peer, seats[3].peer);
  EXPECT_EQ(membership.newest(), fresh.peer);
}

// A sender's tries are called by its number, a ledger's by its term above 15 bits of 0.
TEST(Membership, NobodyGetsANumberThatMakesItsTriesLookLikeALedgers) {
  constexpr std::uint32_t kTurn = 1U << 15;
  Membership membership({4});
  membership.begin_after(PeerId{kTurn - 2});
  EXPECT_EQ(membership.join(hello("host:1"))->peer, PeerId{kTurn - 1});
  const PeerId next = membership.join(hello("host:2"))->peer;
  EXPECT_EQ(next, PeerId{kTurn + 1});
  EXPECT_NE(resend_attempt(next, 7), lease_attempt(Term{2}, 7));
  EXPECT_EQ(resend_attempt(PeerId{kTurn}, 7), lease_attempt(Term{2}, 7)) << "that is why";
  Membership restored({4});
  restored.begin_after(PeerId{kTurn - 1});
  EXPECT_EQ(restored.join(hello("host:1"))->peer, PeerId{kTurn + 1});
}

// Those that are gone take nobody's place.
TEST(Membership, TheRunIsFullOfThoseThatAreThere) {
  Membership membership(std::vector<std::uint32_t>(Limits::peers_max / Limits::stage_peers_max,
                                                   std::uint32_t{Limits::stage_peers_max}));
  Seat last;
  for (int peer = 0; peer < Limits::peers_max; ++peer) {
    const StageId stage{static_cast<std::uint16_t>(peer / Limits::stage_peers_max)};
    last = *membership.join(hello("host"), stage);
  }
  const auto refused = membership.join(hello("host"), StageId{0});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  membership.fence(last);
  EXPECT_TRUE(membership.join(hello("host"), last.stage).has_value());
}

}  // namespace
}  // namespace swarmline
