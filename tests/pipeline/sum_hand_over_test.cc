// Sums that change hands, without a stage: what the giver and the taker do with what they hear.
#include "pipeline/stage/phases/sum_hand_over.h"

#include <gtest/gtest.h>

#include "engine/checkpoint/sha256.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/stage_bench.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

const Phase kStep{PhaseKind::kTrain, 0};

class SumHandOverTest : public testing::Test {
 protected:
  SumHandOverTest() {
    phases_.announce(kStep, Version{0}, bench_.config().microbatches_per_step(), PhaseEpoch{1});
    contributions_.open(kStep);
    bench_.state().begin(0);
  }
  ~SumHandOverTest() override {
    hand_over_.check_invariants();
    contributions_.check_invariants();
  }

  void add(std::uint32_t index, bool acknowledged) {
    const AttemptId id{MicrobatchId{kStep, index}, Attempt{0}};
    ASSERT_TRUE(contributions_.reserve(id));
    contributions_.added(std::make_shared<MicrobatchTask>(id));
    if (!acknowledged) return;
    wire::ReportAck ack;
    *ack.mutable_phase() = to_wire(kStep);
    ack.add_accepted(index);
    contributions_.on_ack(ack);
  }
  std::vector<wire::SumsFrozen> asked_to_give() {
    wire::GiveSums give;
    *give.mutable_phase() = to_wire(kStep);
    EXPECT_TRUE(hand_over_.on_give(give).has_value());
    return bench_.told<wire::SumsFrozen>(MessageKind::kSumsFrozen);
  }
  wire::ReportAck ack_of(std::vector<std::uint32_t> accepted, std::vector<std::uint32_t> refused) {
    wire::ReportAck ack;
    *ack.mutable_phase() = to_wire(kStep);
    for (const std::uint32_t index : accepted) ack.add_accepted(index);
    for (const std::uint32_t index : refused) ack.add_refused(index);
    return ack;
  }
  wire::TakeSums take_of(std::vector<std::uint32_t> indices) const {
    wire::TakeSums take;
    *take.mutable_phase() = to_wire(kStep);
    *take.mutable_giver()->mutable_seat() = to_wire(bench_.other());
    take.mutable_giver()->set_address(bench_.others_address());
    for (const std::uint32_t index : indices) take.add_contributions()->set_index(index);
    take.set_bytes(sums_.size());
    take.add_hashes(sha256_hex(sums_.bytes()));
    return take;
  }
  wire::SumsMoved moved(std::optional<Seat> taker) const {
    wire::SumsMoved moved;
    *moved.mutable_phase() = to_wire(kStep);
    *moved.mutable_giver() = to_wire(bench_.other());
    if (taker) *moved.mutable_taker() = to_wire(*taker);
    return moved;
  }
  wire::Piece piece() const {
    wire::Piece piece;
    *piece.mutable_blob()->mutable_sums() = to_wire(kStep);
    piece.set_checksum(xxh3(sums_.bytes()));
    return piece;
  }
  std::vector<wire::SumsTaken> said() {
    return bench_.told<wire::SumsTaken>(MessageKind::kSumsTaken);
  }

  StageBench bench_{1, 0, 0};
  PhaseBook phases_;
  Contributions contributions_{bench_.context(),
                               Contributions::subtract_on_device(bench_.context())};
  SumHandOver hand_over_{bench_.context(), bench_.jobs(), phases_, contributions_};
  const Buffer sums_ = Buffer::zeroed(bench_.state().layout().bytes());  // the other's
};

// ---- The giver ----------------------------------------------------------------------------------

TEST_F(SumHandOverTest, GivesWhatTheLedgerHasAccepted) {
  add(0, true);
  add(1, true);
  const auto frozen = asked_to_give();
  ASSERT_EQ(frozen.size(), 1U);
  EXPECT_EQ(frozen[0].contributions_size(), 2);
  EXPECT_EQ(frozen[0].bytes(), bench_.state().layout().bytes());
  EXPECT_EQ(hand_over_.bytes(kStep).size(), bench_.state().layout().bytes());
  EXPECT_FALSE(contributions_.reserve({MicrobatchId{kStep, 2}, Attempt{0}})) << "it adds no more";
  EXPECT_EQ(asked_to_give().size(), 1U) << "for another taker";
}

TEST_F(SumHandOverTest, GivesNothingWhileAReportIsNotAnswered) {
  const MarkExpected adding("hand_over.still_adding");
  add(0, false);
  const auto frozen = asked_to_give();
  ASSERT_EQ(frozen.size(), 1U);
  EXPECT_EQ(frozen[0].contributions_size(), 0);
  EXPECT_TRUE(contributions_.reserve({MicrobatchId{kStep, 2}, Attempt{0}}));
}

// Another coordinator knows nothing of it.
TEST_F(SumHandOverTest, WhatWasGivenIsInDoubtUntilAnotherCoordinatorSaysWhoseItIs) {
  add(0, true);
  asked_to_give();
  wire::PhaseHoldings held;
  *held.mutable_phase() = to_wire(kStep);
  contributions_.list(held);
  EXPECT_EQ(held.acknowledged_size(), 0);
  ASSERT_EQ(held.reported_size(), 1);
  const MarkExpected has_it("hand_over.the_taker_has_it");
  EXPECT_TRUE(hand_over_.on_ack(ack_of({}, {0})));
  bench_.run();
  EXPECT_EQ(contributions_.count(kStep), 0U);
  EXPECT_TRUE(hand_over_.bytes(kStep).empty());
}

TEST_F(SumHandOverTest, WhatNobodyElseHasStays) {
  add(0, true);
  asked_to_give();
  EXPECT_TRUE(hand_over_.on_ack(ack_of({0}, {})));
  EXPECT_EQ(contributions_.count(kStep), 1U);
  EXPECT_FALSE(hand_over_.on_ack(ack_of({0}, {}))) << "it gives nothing any more";
}

// ---- The taker ----------------------------------------------------------------------------------

TEST_F(SumHandOverTest, CountsThemAsItsOwnOnceTheyHaveMoved) {
  add(1, true);
  ASSERT_TRUE(hand_over_.on_take(take_of({0, 2})).has_value());
  ASSERT_EQ(bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest).size(), 1U);
  hand_over_.on_piece(bench_.other(), piece(), sums_.bytes());
  const auto taken = said();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_FALSE(taken[0].refused());
  EXPECT_FALSE(contributions_.reserve({MicrobatchId{kStep, 2}, Attempt{0}}));
  ASSERT_TRUE(hand_over_.on_moved(moved(bench_.self())).has_value());
  wire::PhaseHoldings held;
  *held.mutable_phase() = to_wire(kStep);
  contributions_.list(held);
  EXPECT_EQ(held.acknowledged_size(), 3);
  EXPECT_FALSE(hand_over_.on_moved(moved(bench_.self())).has_value()) << "they are not here twice";
}

TEST_F(SumHandOverTest, RefusesWhatItHasAddedItself) {
  const MarkExpected refused("hand_over.refused");
  add(0, false);
  ASSERT_TRUE(hand_over_.on_take(take_of({0, 2})).has_value());
  const auto taken = said();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_TRUE(taken[0].refused());
  EXPECT_TRUE(contributions_.reserve({MicrobatchId{kStep, 2}, Attempt{0}}));
}

// It waited for its turn here, and the loss did not.
TEST_F(SumHandOverTest, TakesNothingFromOneThatIsLost) {
  const MarkExpected gone("hand_over.giver_is_gone");
  bench_.context().links.fence(bench_.other());
  hand_over_.on_peer_lost(bench_.other());
  ASSERT_TRUE(hand_over_.on_take(take_of({0, 2})).has_value());
  EXPECT_TRUE(said().empty());
  EXPECT_TRUE(contributions_.reserve({MicrobatchId{kStep, 0}, Attempt{0}}))
      << "it is leased again, to this one, too";
}

TEST_F(SumHandOverTest, IsToldThatTheyHaveNotMoved) {
  ASSERT_TRUE(hand_over_.on_take(take_of({0})).has_value());
  ASSERT_TRUE(hand_over_.on_moved(moved(std::nullopt)).has_value());
  EXPECT_TRUE(contributions_.reserve({MicrobatchId{kStep, 0}, Attempt{0}}));
}

TEST_F(SumHandOverTest, AsksAgainWhereTheGiverHadNothing) {
  const MarkExpected again("hand_over.asked_again");
  ASSERT_TRUE(hand_over_.on_take(take_of({0})).has_value());
  ASSERT_EQ(bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest).size(), 1U);
  wire::Piece missing = piece();
  missing.set_missing(true);
  hand_over_.on_piece(bench_.other(), missing, {});
  bench_.run(1s);
  EXPECT_EQ(bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest).size(), 1U);
}

TEST_F(SumHandOverTest, WhatCantBeSumsOfTheStageIsCorrupt) {
  std::vector<wire::TakeSums> wrong(6, take_of({0}));
  wrong[0].clear_contributions();
  wrong[1].set_bytes(8);
  wrong[2].clear_hashes();
  *wrong[3].mutable_giver()->mutable_seat() = to_wire(bench_.self());
  wrong[4].add_contributions()->set_index(1'000'000);
  wrong[5].mutable_giver()->mutable_seat()->set_stage(1);
  for (const wire::TakeSums& take : wrong) EXPECT_FALSE(hand_over_.on_take(take).has_value());
  EXPECT_TRUE(said().empty());
}

}  // namespace
}  // namespace swarmline
