// Where a stage's state comes from, and what is frozen of it for others.
#include <memory>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

#include "base/hash.h"
#include "engine/checkpoint/sha256.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/state/frozen_state.h"
#include "pipeline/stage/state/state_exchange.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/stage_bench.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class StateTest : public testing::Test {
 protected:
  void make(std::shared_ptr<KeptState> kept = nullptr) {
    states_.emplace(bench_.context(), bench_.jobs(), false, false, std::move(kept),
                    StateExchange::Hooks{.on_offered = [](Version) {},
                                         .on_lost = [this] { ++lost_; },
                                         .on_here = [this](Version version, std::uint64_t,
                                                           StateOrigin) { here_ = version; }});
  }
  wire::StateOffer offer(std::uint64_t version) {
    wire::StateOffer offer;
    offer.set_version(version);
    offer.set_bytes(frozen_.size());
    offer.add_hashes(sha256_hex(frozen_.bytes()));
    wire::GroupMember* holder = offer.add_holders();
    *holder->mutable_seat() = to_wire(bench_.other());
    holder->set_address("sim:2");
    return offer;
  }
  // Of version 3.
  std::shared_ptr<KeptState> kept(Buffer bytes) {
    return std::make_shared<KeptState>(KeptState{.stage = {},
                                                 .era = {},
                                                 .version = Version{3},
                                                 .frozen_bytes = frozen_.size(),
                                                 .bytes = std::move(bytes)});
  }
  static wire::StateOffer offer_of_its_own(std::uint64_t version) {
    wire::StateOffer offer;
    offer.set_version(version);
    offer.set_kept(true);
    return offer;
  }
  void answer(BytesView bytes, std::uint64_t checksum) {
    const auto requests = bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest);
    ASSERT_EQ(requests.size(), 1U);
    wire::Piece piece;
    *piece.mutable_blob() = requests[0].blob();
    piece.set_checksum(checksum);
    states_->on_piece(bench_.other(), piece, bytes);
    states_->check_invariants();
  }

  StageBench bench_{1, 0, 0};
  Buffer frozen_ = std::move(*bench_.state().freeze());
  int lost_ = 0;
  std::optional<Version> here_;
  std::optional<StateExchange> states_;
};

TEST_F(StateTest, AStateIsFetchedAndADamagedPieceAskedAgain) {
  make();
  states_->want();
  EXPECT_EQ(bench_.told<wire::WantState>(MessageKind::kWantState).size(), 1U);
  ASSERT_TRUE(states_->on_offer(offer(3)).has_value());
  answer(frozen_.bytes(), 1);
  answer(frozen_.bytes(), xxh3(frozen_.bytes()));
  bench_.run();
  EXPECT_EQ(here_, Version{3});
  EXPECT_TRUE(states_->here());
}

TEST_F(StateTest, WhatWasKeptIsReusedWhereItsHashesAreThoseOffered) {
  const MarkExpected reused("state.kept_one_reused");
  make(kept(Buffer::copy_of(frozen_.bytes())));
  ASSERT_TRUE(states_->on_offer(offer(3)).has_value());
  EXPECT_TRUE(bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest).empty());
  EXPECT_EQ(here_, Version{3});
}

TEST_F(StateTest, WhatWasKeptAndDiffersIsFetched) {
  const MarkExpected differs("state.kept_one_differs");
  make(kept(Buffer::zeroed(frozen_.size())));
  ASSERT_TRUE(states_->on_offer(offer(3)).has_value());
  answer(frozen_.bytes(), xxh3(frozen_.bytes()));
  bench_.run();
  EXPECT_EQ(here_, Version{3});
}

TEST_F(StateTest, WhereNobodyElseHasItWhatWasKeptIsBegunWith) {
  const MarkExpected begins("state.begins_with_what_it_kept");
  make(kept(Buffer::copy_of(frozen_.bytes())));
  states_->want();
  ASSERT_TRUE(states_->on_offer(offer_of_its_own(3)).has_value());
  states_->check_invariants();
  bench_.run();
  EXPECT_EQ(here_, Version{3});
  EXPECT_TRUE(bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest).empty());
}

TEST_F(StateTest, WhoHasNoCopyOfThatVersionWantsAnother) {
  make(kept(Buffer::copy_of(frozen_.bytes())));
  states_->want();
  ASSERT_TRUE(states_->on_offer(offer_of_its_own(4)).has_value());
  EXPECT_EQ(bench_.told<wire::WantState>(MessageKind::kWantState).size(), 2U);
  EXPECT_EQ(states_->progress(), StateProgress::kWanted);
  make();
  ASSERT_TRUE(states_->on_offer(offer_of_its_own(3)).has_value());
  EXPECT_EQ(bench_.told<wire::WantState>(MessageKind::kWantState).size(), 1U);
}

TEST_F(StateTest, AStateThatNobodyHasAnyMoreIsWantedAnew) {
  const MarkExpected anew("state.wanted_anew");
  make();
  ASSERT_TRUE(states_->on_offer(offer(3)).has_value());
  states_->on_peer_lost(bench_.other());
  bench_.run(knobs().state_retry + 1s);
  EXPECT_EQ(lost_, 1);
  EXPECT_EQ(states_->progress(), StateProgress::kWanted);
  EXPECT_EQ(bench_.told<wire::WantState>(MessageKind::kWantState).size(), 1U);
}

// What it stood on was gone when the load ended.
TEST_F(StateTest, WhoFallsTooFarBehindWhileItLoadsStartsOver) {
  make();
  ASSERT_TRUE(states_->on_offer(offer(3)).has_value());
  const auto requests = bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest);
  ASSERT_EQ(requests.size(), 1U);
  wire::Piece piece;
  *piece.mutable_blob() = requests[0].blob();
  piece.set_checksum(xxh3(frozen_.bytes()));
  states_->on_piece(bench_.other(), piece, frozen_.bytes());
  ASSERT_EQ(states_->progress(), StateProgress::kLoading);
  states_->want();
  bench_.run();
  EXPECT_FALSE(here_.has_value());
  states_->check_invariants();
}

TEST_F(StateTest, WhatCameDamagedFromEverybodyIsAskedForOnceMore) {
  const MarkExpected once_more("state.damaged_pieces_asked_again");
  make();
  ASSERT_TRUE(states_->on_offer(offer(3)).has_value());
  for (std::uint32_t times = 0; times < 40 && states_->progress() == StateProgress::kFetching;
       ++times) {
    const auto requests = bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest);
    if (requests.empty()) break;
    wire::Piece piece;
    *piece.mutable_blob() = requests[0].blob();
    piece.set_checksum(1);
    states_->on_piece(bench_.other(), piece, frozen_.bytes());
  }
  bench_.run(knobs().state_retry + 1s);
  answer(frozen_.bytes(), xxh3(frozen_.bytes()));
  bench_.run();
  EXPECT_EQ(here_, Version{3});
}

TEST_F(StateTest, AnErasBeginningComesFromTheCoordinator) {
  const MarkExpected saved("state.fetched_from_a_checkpoint");
  make();
  states_->fetch_saved(Version{8});
  const auto requests = bench_.told<wire::PieceRequest>(MessageKind::kPieceRequest);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].blob().saved(), 8U);
  EXPECT_FALSE(requests[0].has_to()) << "nobody but the coordinator has it";
}

TEST_F(StateTest, WhatAShadowHadCountsWhateverWasOfferedMeanwhile) {
  make();
  ASSERT_TRUE(states_->on_offer(offer(3)).has_value());
  states_->taken_over();
  EXPECT_TRUE(states_->here());
  states_->check_invariants();
  bench_.run();
  EXPECT_FALSE(here_.has_value());
}

TEST_F(StateTest, AStateOfAnotherSizeIsRefused) {
  make();
  wire::StateOffer other = offer(3);
  other.set_bytes(frozen_.size() + 1);
  EXPECT_EQ(states_->on_offer(other).error().code, ErrorCode::kIncompatible);
}

TEST_F(StateTest, AFrozenStateIsLetGoOfWhenNobodyAsks) {
  FrozenState frozen(bench_.context(), bench_.jobs());
  EXPECT_FALSE(frozen.freeze(1, Version{0}).has_value());
  ASSERT_TRUE(frozen.freeze(0, Version{0}).has_value());
  const auto told = bench_.told<wire::StateFrozen>(MessageKind::kStateFrozen);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].bytes(), frozen_.size());
  EXPECT_TRUE(frozen.holds(0));
  bench_.run(knobs().frozen_idle / 2);
  EXPECT_FALSE(frozen.use().empty());
  bench_.run(knobs().frozen_idle * 3 / 4);
  EXPECT_TRUE(frozen.holds(0)) << "somebody asked meanwhile";
  frozen.check_invariants();
  const MarkExpected let_go("state.frozen_let_go");
  bench_.run(2 * knobs().frozen_idle);
  EXPECT_FALSE(frozen.holds(0));
}

}  // namespace
}  // namespace swarmline
