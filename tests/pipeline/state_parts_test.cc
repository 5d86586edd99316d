// Where a stage's state comes from, and what is frozen of it for others.
#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
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
    states_.emplace(
        bench_.context(), bench_.jobs(), false, false, std::move(kept),
        StateExchange::Hooks{
            .on_offered = [](Version) {},
            .on_lost = [this] { ++lost_; },
            .on_here = [this](Version version, std::uint64_t, StateOrigin,
                              bool all_in_use) { here_ = version, all_in_use_ = all_in_use; },
            .is_behind = [this] { return is_behind_; },
            .parameters_serve = [this](Version) { return parameters_serve_; },
            .on_parameters_here = [this](Version version) { early_ = version; },
            .asks_max = [] { return PieceFetch::kPiecesMax; }});
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
    return std::make_shared<KeptState>(
        KeptState{.stage = {}, .era = {}, .version = Version{3}, .bytes = std::move(bytes)});
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

  static RunConfig run_with(std::uint32_t delay) {
    RunConfig config = small_run(1, 2);
    config.pipeline.delay = delay;
    return config;
  }

  explicit StateTest(std::uint32_t delay = 0) : bench_(run_with(delay), 0, 0) {}

  StageBench bench_;
  Buffer frozen_ = std::move(*bench_.state().save());
  int lost_ = 0;
  bool is_behind_ = false, all_in_use_ = false;
  bool parameters_serve_ = false;
  std::optional<Version> early_;  // its parameters are here
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

class PiecesOfAState : public StateTest {
 protected:
  using StateTest::StateTest;
  static constexpr std::uint32_t kPiece = 64;

  static Knobs small_pieces() {
    Knobs knobs;
    knobs.state_piece_bytes = kPiece;
    return knobs;
  }
  BytesView piece(std::uint32_t number) const {
    const std::uint64_t first = std::uint64_t{number} * kPiece;
    return frozen_.bytes().subspan(first, std::min<std::uint64_t>(kPiece, frozen_.size() - first));
  }
  void begin() {
    make();
    states_->want();
    wire::StateOffer offer = this->offer(3);
    offer.clear_hashes();
    for (std::uint32_t number = 0; std::uint64_t{number} * kPiece < frozen_.size(); ++number)
      offer.add_hashes(sha256_hex(piece(number)));
    ASSERT_TRUE(states_->on_offer(offer).has_value());
  }
  // What was asked for and is below `end` comes, and what is asked for then.
  void give_below(std::uint64_t end) {
    while (true) {
      std::ranges::move(bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest),
                        std::back_inserter(asked_));
      if (asked_.empty() || std::uint64_t{asked_.front().piece()} * kPiece >= end) return;
      const wire::PieceRequest request = std::move(asked_.front());
      asked_.pop_front();
      wire::Piece reply;
      *reply.mutable_blob() = request.blob();
      reply.set_piece(request.piece());
      reply.set_checksum(xxh3(piece(request.piece())));
      states_->on_piece(bench_.other(), reply, piece(request.piece()));
      states_->check_invariants();
    }
  }

  TurnedKnobs knobs_{small_pieces()};
  std::deque<wire::PieceRequest> asked_;
};

using EarlyParameters = PiecesOfAState;

class VersionBefore : public PiecesOfAState {
 protected:
  VersionBefore() : PiecesOfAState(1) {}
  std::uint64_t committed() { return bench_.state().committed_state_bytes(); }
};

TEST_F(VersionBefore, ComesLast) {
  ASSERT_LT(committed() + kPiece, frozen_.size());
  begin();
  give_below(committed());
  bench_.run();
  EXPECT_FALSE(here_) << "it is computed on";
  give_below(frozen_.size());
  bench_.run();
  EXPECT_EQ(here_, Version{3});
  EXPECT_TRUE(all_in_use_);
}

TEST_F(VersionBefore, IsDoneWithoutOnceSomethingWasCommitted) {
  const MarkExpected without("state.version_before_done_without");
  is_behind_ = true;
  begin();
  give_below(committed() - kPiece);
  bench_.run();
  EXPECT_FALSE(here_) << "a piece of what was committed is missing";
  give_below(committed());
  bench_.run();
  EXPECT_EQ(here_, Version{3});
  EXPECT_FALSE(all_in_use_);
}

TEST_F(VersionBefore, IsWaitedForNoLongerThanUntilACommit) {
  begin();
  give_below(committed());
  is_behind_ = true;
  states_->on_committed_since();
  states_->check_invariants();
  bench_.run();
  EXPECT_EQ(here_, Version{3});
  EXPECT_FALSE(all_in_use_);
}

TEST_F(EarlyParameters, AreLoadedBeforeTheRestIsHere) {
  const MarkExpected early("state.parameters_first");
  parameters_serve_ = true;
  begin();
  const std::uint64_t parameters = bench_.state().parameter_bytes();
  ASSERT_LT(parameters + kPiece, frozen_.size());
  give_below(parameters - 1 - (parameters - 1) % kPiece);
  bench_.run();
  EXPECT_FALSE(early_) << "a piece of them is missing";
  give_below(parameters);
  bench_.run();
  EXPECT_EQ(early_, Version{3});
  EXPECT_TRUE(
      same_bytes(*bench_.state().committed_parameters(), frozen_.bytes().first(parameters)));
  EXPECT_FALSE(here_);
  give_below(frozen_.size());
  bench_.run();
  EXPECT_EQ(here_, Version{3});
}

TEST_F(EarlyParameters, WaitForTheRestWhereTheyAreNotComputedOn) {
  begin();
  give_below(frozen_.size());
  bench_.run();
  EXPECT_FALSE(early_);
  EXPECT_EQ(here_, Version{3});
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
