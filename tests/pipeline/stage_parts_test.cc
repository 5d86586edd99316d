// A peer's parts alone: phases, leases, links, averaging, stage masks.
#include <cstring>

#include <gtest/gtest.h>

#include "pipeline/protocol/message_kinds.h"
#include "pipeline/source/lease_window.h"
#include "pipeline/stage/common/peer_links.h"
#include "pipeline/stage/common/phase_book.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"
#include "tests/pipeline/phases_and_seats.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// ---- Masks and windows
// ---------------------------------------------------------------------------------------------

TEST(StageMask, EmptyMeansEveryStageAndBitsBeyondMeanNone) {
  EXPECT_TRUE(mask_has("", StageId{0}));
  EXPECT_TRUE(mask_has("", StageId{900}));
  const std::string mask("\x02\x80", 2);  // stages 1 and 15
  EXPECT_FALSE(mask_has(mask, StageId{0}));
  EXPECT_TRUE(mask_has(mask, StageId{1}));
  EXPECT_TRUE(mask_has(mask, StageId{15}));
  EXPECT_FALSE(mask_has(mask, StageId{16}));
  EXPECT_TRUE(mask_empty_below(mask, StageId{1})) << "backward ends at the lowest masked stage";
  EXPECT_FALSE(mask_empty_below(mask, StageId{2}));
  EXPECT_FALSE(mask_empty_below("", StageId{1}));
  EXPECT_TRUE(mask_empty_below("", StageId{0}));
}

TEST(LeaseWindow, AsksForOneMoreForEachThatEnded) {
  LeaseWindow window(3);
  EXPECT_EQ(window.total_wanted(), 3U);
  window.on_finished();
  window.on_finished();
  EXPECT_EQ(window.total_wanted(), 5U);
  EXPECT_EQ(window_for(7, 100, 1), 7U);
  EXPECT_EQ(window_for(0, 8, 2), 16U) << "four for each peer, shared by the sources";
  EXPECT_EQ(window_for(0, 1, 1), 4U);
  EXPECT_EQ(window_for(0, 1, 0), 4U);
  PipelineSection pipeline;
  pipeline.peers = {2, 3, 3};
  EXPECT_EQ(window_for(pipeline), 16U);
}

// ---- PhaseBook ----------------------------------------------------------------------------------

TEST(PhaseBook, APhaseIsFutureThenActiveThenOver) {
  PhaseBook book;
  EXPECT_EQ(book.status(train(0)), PhaseStatus::kFuture);
  book.announce(train(0), Version{0}, 8, PhaseEpoch{1});
  EXPECT_EQ(book.status(train(0)), PhaseStatus::kFuture)
      << "announced, and its parameters are not there yet";
  EXPECT_EQ(book.microbatches(train(0)), 8U);
  book.activate(train(0));
  EXPECT_EQ(book.status(train(0)), PhaseStatus::kActive);
  book.retire(train(0));
  EXPECT_EQ(book.status(train(0)), PhaseStatus::kOver);
  EXPECT_EQ(book.microbatches(train(0)), 0U);
  EXPECT_EQ(book.status(eval(0)), PhaseStatus::kFuture) << "evaluations end on their own";
  book.retire(train(4));
  EXPECT_EQ(book.status(train(2)), PhaseStatus::kOver) << "older ones are over too";
  EXPECT_EQ(book.status(train(5)), PhaseStatus::kFuture);
  book.activate(train(5));
  EXPECT_EQ(book.status(train(5)), PhaseStatus::kFuture) << "nobody announced it";
}

TEST(PhaseBook, WhatWasLeasedBeforeASealIsOverAndWhatComesAfterwardsWaits) {
  PhaseBook book;
  book.announce(train(0), Version{0}, 8, PhaseEpoch{5});
  book.activate(train(0));
  EXPECT_EQ(book.status(train(0), PhaseEpoch{5}), PhaseStatus::kActive);
  EXPECT_EQ(book.status(train(0), PhaseEpoch{6}), PhaseStatus::kFuture)
      << "nobody has said so here yet";
  book.seal(train(0));
  EXPECT_EQ(book.status(train(0), PhaseEpoch{5}), PhaseStatus::kOver);
  EXPECT_EQ(book.status(train(0), PhaseEpoch{6}), PhaseStatus::kFuture);
  book.reopen(train(0), PhaseEpoch{7});
  EXPECT_EQ(book.status(train(0), PhaseEpoch{6}), PhaseStatus::kFuture) << "not active yet";
  book.activate(train(0));
  EXPECT_EQ(book.status(train(0), PhaseEpoch{5}), PhaseStatus::kOver);
  EXPECT_EQ(book.status(train(0), PhaseEpoch{6}), PhaseStatus::kActive)
      << "opened again twice, and not sealed in between: it still counts";
  EXPECT_EQ(book.status(train(0), PhaseEpoch{7}), PhaseStatus::kActive);
  EXPECT_EQ(book.status(train(0), PhaseEpoch{8}), PhaseStatus::kFuture);
  book.retire(train(0));
  EXPECT_EQ(book.status(train(0), PhaseEpoch{8}), PhaseStatus::kOver);
}

TEST(PhaseBook, NobodyIsFurtherAheadThanASealAllows) {
  PhaseBook book;
  EXPECT_FALSE(book.beyond_reach(train(PhaseBook::kStepsAheadMax)));
  EXPECT_TRUE(book.beyond_reach(train(PhaseBook::kStepsAheadMax + 1)));
  EXPECT_TRUE(book.beyond_reach(eval(UINT64_MAX)));
  book.retire(train(9));
  EXPECT_FALSE(book.beyond_reach(train(10 + PhaseBook::kStepsAheadMax)));
  EXPECT_TRUE(book.beyond_reach(train(11 + PhaseBook::kStepsAheadMax)));
}

// ---- PeerLinks ----------------------------------------------------------------------------------

class PeerLinksTest : public testing::Test {
 protected:
  struct End {
    std::vector<std::pair<Seat, MessageKind>> heard;
    std::vector<std::pair<Seat, ErrorCode>> lost;
    std::unique_ptr<PeerLinks> links;
    std::string address;
    Seat seat;
  };

  void make(End& end, SimNodeId node, const Seat& seat, const std::string& run_id = "run") {
    end.seat = seat;
    end.links = std::make_unique<PeerLinks>(
        runtime_.node(node), network_.node(node), 10s,
        PeerLinks::Handlers{
            .on_frame = [&end](const Seat& from,
                               Frame frame) { end.heard.emplace_back(from, kind_of(frame)); },
            .on_lost = [&end](const Seat& peer,
                              const Error& error) { end.lost.emplace_back(peer, error.code); }});
    end.address = to_string(*end.links->listen({"sim", 0}));
    end.links->set_identity({.term = Term{1}, .era = Era{0}, .run_id = run_id, .self = seat});
  }
  void credit(End& from, const End& to) {
    from.links->send(to.seat, make_frame(MessageKind::kCredit, wire::Credit()));
  }

  SimRuntime runtime_{1};
  SimNetwork network_{runtime_, {}};
  End a_, b_;
};

TEST_F(PeerLinksTest, DialsOnDemandAndAnswersOverTheSameLink) {
  make(a_, 1, seat_of(1, 0));
  make(b_, 2, seat_of(2, 1));
  a_.links->set_address(b_.seat, b_.address);
  credit(a_, b_);
  credit(a_, b_);
  runtime_.run_for(1s);
  ASSERT_EQ(b_.heard.size(), 2U);
  EXPECT_EQ(b_.heard[0].first, a_.seat);
  credit(b_, a_);  // it was told no address
  runtime_.run_for(1s);
  ASSERT_EQ(a_.heard.size(), 1U);
  EXPECT_EQ(a_.heard[0].first, b_.seat);
  EXPECT_TRUE(a_.lost.empty() && b_.lost.empty());
}

TEST_F(PeerLinksTest, ALinkOfAnotherRunOrSeatIsRejected) {
  make(a_, 1, seat_of(1, 0), "another run");
  make(b_, 2, seat_of(2, 1));
  a_.links->set_address(b_.seat, b_.address);
  credit(a_, b_);
  runtime_.run_for(1s);
  EXPECT_TRUE(b_.heard.empty());
  EXPECT_EQ(b_.links->rejected_links(), 1U);
  ASSERT_EQ(a_.lost.size(), 1U) << "the dialler hears that it is closed";

  End c;
  make(c, 3, seat_of(3, 0));
  const Seat former = {b_.seat.peer, b_.seat.stage, Incarnation{7}};
  c.links->set_address(former, b_.address);
  c.links->send(former, make_frame(MessageKind::kCredit, wire::Credit()));
  runtime_.run_for(1s);
  EXPECT_EQ(b_.links->rejected_links(), 2U);
}

// Over a run's life most that were ever heard of are gone.
TEST_F(PeerLinksTest, AddressesOfThoseThatAreGoneAreForgotten) {
  make(a_, 1, seat_of(1, 0));
  constexpr std::uint32_t kStay = 20;
  for (std::uint32_t i = 2; i <= 5000; ++i) {
    a_.links->set_address(seat_of(i, 1), "sim:2");
    if (i > kStay) a_.links->fence(seat_of(i, 1));
    EXPECT_LE(a_.links->addresses(), PeerLinks::kAddressesKept + 1);
  }
  make(b_, 2, seat_of(2, 1));
  credit(a_, b_);
  runtime_.run_for(1s);
  EXPECT_EQ(b_.heard.size(), 1U) << "of the others nothing is forgotten";
}

// Over a run's life there are peers without number.
TEST_F(PeerLinksTest, FencesOfTheOldestPeersAreForgotten) {
  make(a_, 1, seat_of(1, 0));
  for (std::uint32_t i = 2; i <= PeerLinks::kFencesMax + 100; ++i) a_.links->fence(seat_of(i, 1));
  EXPECT_EQ(a_.links->fences(), PeerLinks::kFencesMax);
}

TEST_F(PeerLinksTest, ACutIsToldOnceAndTheNextWordDialsAnew) {
  make(a_, 1, seat_of(1, 0));
  make(b_, 2, seat_of(2, 1));
  a_.links->set_address(b_.seat, b_.address);
  credit(a_, b_);
  runtime_.run_for(1s);
  network_.cut(1, 2);
  runtime_.run_for(1s);
  EXPECT_EQ(a_.lost.size(), 1U);
  EXPECT_EQ(b_.lost.size(), 1U);
  credit(a_, b_);
  runtime_.run_for(1s);
  EXPECT_EQ(b_.heard.size(), 2U);
}

TEST_F(PeerLinksTest, WhatIsSentWhileDisconnectingDialsAnewToo) {
  make(a_, 1, seat_of(1, 0));
  make(b_, 2, seat_of(2, 1));
  a_.links->set_address(b_.seat, b_.address);
  credit(a_, b_);
  runtime_.run_for(1s);
  a_.links->disconnect(b_.seat, {ErrorCode::kCorrupt, "bad bytes"});
  ASSERT_EQ(a_.lost.size(), 1U);
  EXPECT_EQ(a_.lost[0].second, ErrorCode::kCorrupt);
  credit(a_, b_);
  runtime_.run_for(1s);
  EXPECT_EQ(b_.heard.size(), 2U);
  EXPECT_EQ(a_.lost.size(), 1U) << "it is told once";
}

// Its name is on a link that is there, but the seat is another: it would take another stage's
// activations for its own.
TEST_F(PeerLinksTest, WhatIsMeantForAFormerSeatGoesOverNoLinkOfTheNextOne) {
  const Seat former = seat_of(2, 1);
  make(a_, 1, seat_of(1, 0));
  make(b_, 2, {former.peer, StageId{2}, Incarnation{former.incarnation.value + 1}});
  b_.links->set_address(a_.seat, a_.address);
  a_.links->set_address(b_.seat, b_.address);
  credit(b_, a_);
  runtime_.run_for(1s);
  ASSERT_EQ(a_.heard.size(), 1U);
  a_.links->send(former, make_frame(MessageKind::kCredit, wire::Credit()));
  runtime_.run_for(1s);
  EXPECT_TRUE(b_.heard.empty());
  EXPECT_TRUE(a_.lost.empty());
  credit(a_, b_);
  runtime_.run_for(1s);
  EXPECT_EQ(b_.heard.size(), 1U);

  // ... nor the other way round: whoever still has a link to the former seat dials anew.
  End c;
  make(c, 3, seat_of(3, 0));
  b_.links->set_identity({.term = Term{1}, .era = Era{0}, .run_id = "run", .self = former});
  c.links->set_address(former, b_.address);
  c.links->send(former, make_frame(MessageKind::kCredit, wire::Credit()));
  runtime_.run_for(1s);
  ASSERT_EQ(b_.heard.size(), 2U);
  b_.links->set_identity({.term = Term{1}, .era = Era{0}, .run_id = "run", .self = b_.seat});
  credit(c, b_);
  runtime_.run_for(1s);
  EXPECT_EQ(b_.heard.size(), 3U);
  EXPECT_EQ(b_.links->rejected_links(), 0U);
}

TEST_F(PeerLinksTest, APeerThatCantBeDialledIsLost) {
  make(a_, 1, seat_of(1, 0));
  a_.links->set_address(seat_of(9, 1), "sim:999");
  a_.links->send(seat_of(9, 1), make_frame(MessageKind::kCredit, wire::Credit()));
  a_.links->send(seat_of(8, 1),
                 make_frame(MessageKind::kCredit, wire::Credit()));  // no address at all
  EXPECT_TRUE(a_.lost.empty()) << "never inside the call";
  runtime_.run_for(20s);
  EXPECT_EQ(a_.lost.size(), 2U);
}

}  // namespace
}  // namespace swarmline
