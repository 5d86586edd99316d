// Links that one end alone can dial: over simulated links, with a coordinator that only passes on
// who asks to be called.
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/common/peer_links.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_relay.h"
#include "sim/doors/sim_runtime.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Dialling : public testing::Test {
 protected:
  struct End {
    Seat seat;
    std::vector<Seat> heard;
    std::vector<std::pair<Instant, ErrorCode>> lost;
    std::vector<Instant> asked;
    std::vector<LinkNews> news;
    std::unique_ptr<PeerLinks> links;
    std::string address;
  };

  Dialling() {
    make(a_, 1);
    make(b_, 2);
  }
  void make(End& end, SimNodeId node) {
    end.seat = {PeerId{node}, StageId{0}, Incarnation{1}};
    End& other = node == 1 ? b_ : a_;
    end.links = std::make_unique<PeerLinks>(
        runtime_.node(node), network_.node(node), 10s,
        PeerLinks::Handlers{
            .on_frame = [&end](const Seat& from, Frame) { end.heard.push_back(from); },
            .on_lost =
                [this, &end](const Seat&, const Error& error) {
                  end.lost.emplace_back(runtime_.now(), error.code);
                },
            .on_news = [&end](const Seat&, LinkNews news) { end.news.push_back(news); },
            .ask_for_call =
                [this, &end, &other](const Seat&) {
                  if (!led_) return false;
                  end.asked.push_back(runtime_.now());
                  runtime_.node(0).call_after(
                      1ms, [&end, &other] { other.links->call(end.seat, end.address); });
                  return true;
                },
            .on_call_failed =
                [this, &end, &other](const Seat&) {
                  runtime_.node(0).call_after(
                      1ms, [&end, &other] { other.links->nobody_calls(end.seat); });
                }});
    end.address = to_string(*end.links->listen({"sim", 0}));
    end.links->set_identity({.term = Term{1}, .era = Era{0}, .run_id = "run", .self = end.seat});
  }
  void credit(End& from, const End& to) {
    from.links->set_address(to.seat, to.address);
    from.links->send(to.seat, make_frame(MessageKind::kCredit, wire::Credit()));
  }

  SimRuntime runtime_{1};
  SimNetwork network_{runtime_, {}};
  bool led_ = true;  // somebody passes calls on
  End a_, b_;
};

TEST_F(Dialling, WhoTakesNoConnectionsIsAskedToCallAndTheLinkServesBothWays) {
  for (const SimDoor door : {SimDoor::kDrops, SimDoor::kRefuses}) {
    network_.set_door(2, door);
    const MarkExpected came("dials.call_came");
    a_.heard.clear();
    b_.heard.clear();
    credit(a_, b_);
    credit(a_, b_);
    runtime_.run_for(5s);
    EXPECT_EQ(b_.heard.size(), 2U);
    credit(a_, b_);
    credit(b_, a_);
    runtime_.run_for(1s);
    EXPECT_EQ(b_.heard.size(), 3U);
    EXPECT_EQ(a_.heard.size(), 1U);
    EXPECT_TRUE(a_.lost.empty() && b_.lost.empty());
    EXPECT_EQ(a_.links->count(), 1U) << "one link, and no dial is under way";
    EXPECT_EQ(b_.links->count(), 1U);
    a_.links->reset();
    runtime_.run_for(5s);
    b_.lost.clear();
  }
}

// Both begin at the same time, and one of the two is not let through.
TEST_F(Dialling, WhoseLinkCameMeanwhileIsNotAskedToCall) {
  network_.set_door(2, SimDoor::kDrops);
  const MarkExpected came("links.came_meanwhile");
  credit(a_, b_);
  credit(b_, a_);
  runtime_.run_for(2s);
  EXPECT_EQ(a_.heard.size(), 1U);
  EXPECT_EQ(b_.heard.size(), 1U);
  EXPECT_TRUE(a_.asked.empty());
}

// The second time nobody waits for what did not answer the first time.
// [It asked, and heard of its state only when nobody had called for long.]
TEST_F(Dialling, WhoCanOpenNoConnectionAsksNobodyToCall) {
  network_.fill(1, true);
  credit(a_, b_);
  runtime_.run_for(100ms);
  ASSERT_EQ(a_.lost.size(), 1U);
  EXPECT_EQ(a_.lost[0].second, ErrorCode::kIo);
  EXPECT_TRUE(a_.asked.empty()) << "it takes none either";
}

TEST_F(Dialling, WhoCalledBeforeIsAskedAtOnce) {
  network_.set_door(2, SimDoor::kDrops);
  credit(a_, b_);
  runtime_.run_for(30s);
  network_.cut(1, 2);
  runtime_.run_for(1s);
  ASSERT_EQ(a_.lost.size(), 1U);
  credit(a_, b_);
  runtime_.run_for(100ms);
  EXPECT_EQ(b_.heard.size(), 2U);
}

TEST_F(Dialling, TwoThatDoNotReachEachOtherHearOfItOnceAndKeepTrying) {
  network_.set_door(1, SimDoor::kDrops);
  network_.set_door(2, SimDoor::kDrops);
  const MarkExpected nobody("dials.nobody_calls");
  credit(a_, b_);
  runtime_.run_for(20s);
  ASSERT_EQ(a_.lost.size(), 1U);
  EXPECT_EQ(a_.lost[0].second, ErrorCode::kDeadline);
  EXPECT_TRUE(b_.lost.empty()) << "it had nothing to say";
  network_.set_door(2, SimDoor::kOpen);
  credit(a_, b_);
  runtime_.run_for(5s);
  EXPECT_EQ(b_.heard.size(), 1U);
}

TEST_F(Dialling, BothAskAtOnceAndHearThatNobodyCalls) {
  network_.set_door(1, SimDoor::kRefuses);
  network_.set_door(2, SimDoor::kRefuses);
  credit(a_, b_);
  credit(b_, a_);
  runtime_.run_for(20s);
  ASSERT_EQ(a_.lost.size(), 1U);
  ASSERT_EQ(b_.lost.size(), 1U);
  EXPECT_EQ(a_.lost[0].second, ErrorCode::kNotFound);
}

// Whoever says something again as soon as a link is lost must not spin.
TEST_F(Dialling, WhoCannotBeReachedIsDialledEverMoreSeldom) {
  for (const SimDoor door : {SimDoor::kRefuses, SimDoor::kDrops}) {
    network_.set_door(2, door);
    network_.set_door(1, door);
    a_.lost.clear();
    a_.links->reset();
    const MarkExpected paused("dials.paused");
    const Instant began = runtime_.now();
    std::size_t seen = 0;
    credit(a_, b_);
    while (runtime_.now() - began < 200s) {
      ASSERT_TRUE(runtime_.run_until([&] { return a_.lost.size() > seen; }, 60s));
      seen = a_.lost.size();
      credit(a_, b_);
    }
    EXPECT_GE(seen, door == SimDoor::kRefuses ? 90U : 15U) << "it is tried as long as it takes";
    EXPECT_LE(seen, 110U);
    for (std::size_t i = 8; i < seen; ++i)
      EXPECT_GE(a_.lost[i].first - a_.lost[i - 1].first, knobs().redial_pause_max);
  }
}

TEST_F(Dialling, WithoutACoordinatorNobodyIsWaitedFor) {
  led_ = false;
  network_.set_door(2, SimDoor::kRefuses);
  credit(a_, b_);
  runtime_.run_for(100ms);
  EXPECT_EQ(a_.lost.size(), 1U);
}

// A link that has lost its other end unheard: what was on it is lost, too, and said again.
TEST_F(Dialling, WhoIsCalledByAnEndThatHasNoLinkGivesItsOwnUp) {
  credit(b_, a_);
  runtime_.run_for(10s);
  ASSERT_EQ(a_.heard.size(), 1U);
  network_.set_door(2, SimDoor::kRefuses);
  network_.half_open(1, 2, true);
  a_.links->disconnect(b_.seat, {ErrorCode::kCorrupt, "bad bytes"});
  const MarkExpected stale("links.other_end_has_none");
  credit(a_, b_);
  runtime_.run_for(5s);
  EXPECT_EQ(b_.lost.size(), 1U);
  EXPECT_EQ(b_.heard.size(), 1U);
}

TEST_F(Dialling, ACallThatComesLateLeavesTheYoungLinkAlone) {
  credit(b_, a_);
  runtime_.run_for(100ms);
  const MarkExpected late("links.called_too_late");
  b_.links->call(a_.seat, a_.address);
  runtime_.run_for(1s);
  credit(b_, a_);
  runtime_.run_for(1s);
  EXPECT_EQ(a_.heard.size(), 2U);
  EXPECT_TRUE(a_.lost.empty() && b_.lost.empty());
}

// ---- What becomes of a link, for those who may choose another ----

TEST_F(Dialling, ALinkIsDialledWithoutAWordToSay) {
  a_.links->set_address(b_.seat, b_.address);
  EXPECT_TRUE(a_.links->reach(b_.seat));
  runtime_.run_for(1s);
  EXPECT_EQ(a_.news, std::vector<LinkNews>{LinkNews::kMade});
  EXPECT_EQ(b_.news, std::vector<LinkNews>{LinkNews::kMade}) << "it serves both ways";
  EXPECT_FALSE(a_.links->reach(b_.seat)) << "there is one";
  EXPECT_FALSE(b_.links->reach(a_.seat));
  EXPECT_TRUE(b_.heard.empty());
  EXPECT_FALSE(a_.links->is_relayed(b_.seat));
}

TEST_F(Dialling, ALinkThatCantBeHadIsLateAndThenNone) {
  network_.set_door(1, SimDoor::kDrops);
  network_.set_door(2, SimDoor::kDrops);
  const Instant began = runtime_.now();
  credit(a_, b_);
  ASSERT_TRUE(runtime_.run_until([&] { return !a_.news.empty(); }, 5s));
  EXPECT_EQ(runtime_.now() - began, knobs().call_after);
  runtime_.run_for(20s);
  EXPECT_EQ(a_.news, (std::vector<LinkNews>{LinkNews::kLate, LinkNews::kNone}));
  EXPECT_EQ(a_.lost.size(), 1U);
  // The same for one that is only tried for.
  EXPECT_TRUE(a_.links->reach(b_.seat));
  runtime_.run_for(20s);
  EXPECT_EQ(a_.news.back(), LinkNews::kNone);
  EXPECT_EQ(a_.lost.size(), 2U);
  network_.set_door(2, SimDoor::kOpen);
  EXPECT_TRUE(a_.links->reach(b_.seat));
  runtime_.run_for(20s);
  EXPECT_EQ(a_.news.back(), LinkNews::kMade);
}

TEST_F(Dialling, WhereTheOtherEndsLinkIsThereNothingIsLate) {
  network_.set_door(2, SimDoor::kDrops);
  credit(a_, b_);
  credit(b_, a_);
  runtime_.run_for(30s);
  EXPECT_EQ(a_.news, std::vector<LinkNews>{LinkNews::kMade});
}

TEST_F(Dialling, WhatGoesOverARelayIsCountedApart) {
  const std::string ticket(kRelayTicketBytes, 't');
  SimRelay relay(network_, 9, {});
  const Meeting meeting{.relay = *relay.listen({"sim", 0}), .ticket = ticket, .dials = true};
  ASSERT_TRUE(relay.expect(ticket));
  a_.links->meet(b_.seat, meeting);
  b_.links->meet(a_.seat, {.relay = meeting.relay, .ticket = ticket, .dials = false});
  runtime_.run_for(1s);
  ASSERT_TRUE(a_.links->is_relayed(b_.seat));
  ASSERT_TRUE(b_.links->is_relayed(a_.seat));
  EXPECT_EQ(a_.links->relayed_links(), 1U);
  credit(b_, a_);
  runtime_.run_for(1s);
  const std::uint64_t bytes = b_.links->relayed_bytes_sent();
  EXPECT_GT(bytes, 0U);
  EXPECT_EQ(bytes, b_.links->bytes_sent()) << "there is no other link";
  network_.cut(1, 2);
  runtime_.run_for(1s);
  EXPECT_EQ(b_.links->relayed_links(), 0U);
  EXPECT_EQ(b_.links->relayed_bytes_sent(), bytes) << "they stay counted";
  credit(b_, a_);
  runtime_.run_for(10s);
  EXPECT_EQ(b_.links->relayed_bytes_sent(), bytes) << "directly";
  EXPECT_GT(b_.links->bytes_sent(), bytes);
}

TEST_F(Dialling, NobodyDialsForASeatThatIsOver) {
  b_.links->fence(a_.seat);
  b_.links->call(a_.seat, a_.address);
  EXPECT_EQ(b_.links->count(), 0U);
  b_.links->call(b_.seat, b_.address);
  EXPECT_EQ(b_.links->count(), 0U) << "nor itself";
}

}  // namespace
}  // namespace swarmline
