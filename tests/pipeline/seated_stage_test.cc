// A stage with its parts together, the shadows beside it and what it saves: without a peer and
// without a coordinator.
#include "pipeline/stage/seat/seated_stage.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/checkpoint/sha256.h"
#include "kernels/digest.h"
#include "pipeline/stage/common/arena_model.h"
#include "pipeline/stage/phases/coordinator_inbox.h"
#include "pipeline/stage/seat/shadow_stages.h"
#include "pipeline/stage/state/stage_save.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/stage_bench.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Stages : public testing::Test {
 protected:
  SeatedStageParts parts(bool joining) {
    StageContext& context = bench_.context();
    SeatedStageParts parts;
    parts.config = bench_.config();
    parts.spec = bench_.spec();
    parts.stage = context.stage;
    parts.self = bench_.self();
    parts.term = Term{1};
    parts.model = std::make_unique<FakeStageModel>(bench_.spec(), context.stage);
    parts.admit_bytes = 1 << 20;
    parts.joining = joining;
    parts.notify_coordinator = context.notify_coordinator;
    parts.call_coordinator = context.call_coordinator;
    parts.fail = context.fail;
    return parts;
  }
  SeatedStageParts shadow_parts() {
    SeatedStageParts made = parts(true);
    made.model = std::make_unique<ArenaModel>(make_layout(made.spec, made.stage));
    made.shadow = true;
    return made;
  }
  std::unique_ptr<SeatedStage> made_of(SeatedStageParts parts) {
    StageContext& context = bench_.context();
    return std::make_unique<SeatedStage>(context.runtime, context.queue, context.links,
                                         std::move(parts));
  }
  // The other peer has the state of version 3.
  wire::StateOffer offer() {
    wire::StateOffer offer;
    offer.set_version(3);
    offer.set_bytes(frozen_.size());
    offer.add_hashes(sha256_hex(frozen_.bytes()));
    wire::GroupMember* holder = offer.add_holders();
    *holder->mutable_seat() = to_wire(bench_.other());
    holder->set_address("sim:2");
    return offer;
  }
  // Fetches that from it.
  void fetch_state(SeatedStage& stage) {
    ASSERT_TRUE(said(stage, MessageKind::kStateOffer, offer()).has_value());
    const auto requests = bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest);
    ASSERT_EQ(requests.size(), 1U);
    answer(stage, requests[0], frozen_.bytes());
    bench_.run();
  }
  template <typename Message>
  static Result<void> said(SeatedStage& stage, MessageKind kind, const Message& message) {
    return stage.on_coordinator(make_frame(kind, message));
  }
  static Result<void> open(SeatedStage& stage, std::uint64_t step) {
    wire::OpenPhase open;
    open.mutable_phase()->set_step(step);
    open.set_version(step);
    open.set_microbatches(8);
    open.set_opening(1);
    return said(stage, MessageKind::kOpenPhase, open);
  }
  // A commit that steps nothing, and is applied by the device all the same.
  static Result<void> skip(SeatedStage& stage, std::uint64_t step) {
    wire::Commit commit;
    commit.set_step(step);
    commit.set_skipped(true);
    return said(stage, MessageKind::kCommit, commit);
  }
  // Of step 0, whose averaged gradient it has to fetch first.
  void commit_what_it_lacks(SeatedStage& stage) {
    ASSERT_TRUE(open(stage, 0).has_value());
    wire::Membership mates;
    wire::Roster* roster = mates.add_rosters();
    roster->set_stage(bench_.other().stage.value);
    roster->set_serial(1);
    *roster->add_members()->mutable_seat() = to_wire(bench_.other());
    roster->mutable_members(0)->set_address("sim:2");
    ASSERT_TRUE(said(stage, MessageKind::kMembership, mates).has_value());
    wire::Commit commit;
    commit.add_groups()->set_digest(kernels::digest(sum_.bytes()));
    commit.set_bias_correction1(1);
    commit.set_bias_correction2(1);
    ASSERT_TRUE(said(stage, MessageKind::kCommit, commit).has_value());
    EXPECT_EQ(stage.committed(), Version{0});
  }
  void bring_what_it_lacks(SeatedStage& stage) {
    const auto requests = bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest);
    ASSERT_EQ(requests.size(), 1U);
    answer(stage, requests[0], sum_.bytes());
    bench_.run();
    EXPECT_EQ(stage.committed(), Version{1});
    stage.check_invariants();
  }
  void answer(SeatedStage& stage, const wire::PieceRequest& request, BytesView bytes) {
    wire::Piece piece;
    *piece.mutable_blob() = request.blob();
    piece.set_checksum(xxh3(bytes));
    const Frame frame =
        make_frame(MessageKind::kPiece, piece, {SharedBytes(Buffer::copy_of(bytes))});
    ASSERT_TRUE(stage.on_peer(bench_.other(), frame).has_value());
  }
  static Result<void> freeze(SeatedStage& stage, std::uint64_t version) {
    wire::FreezeState freeze;
    freeze.set_version(version);
    return said(stage, MessageKind::kFreezeState, freeze);
  }
  std::vector<wire::Ready> ready() { return bench_.told<wire::Ready>(MessageKind::kReady); }

  StageBench bench_{1, 0, 0};
  Buffer frozen_ = std::move(*bench_.state().save());
  const Buffer sum_ = Buffer::zeroed(bench_.state().reduced().size());
};

// ---- SeatedStage --------------------------------------------------------------------------------

TEST_F(Stages, AMemberOfTheBeginningIsReadyWithTheSeedsParameters) {
  const auto one = made_of(parts(false)), another = made_of(parts(false));
  one->begin();
  another->begin();
  const auto told = ready();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].version(), 0U);
  EXPECT_EQ(told[0].state_digest(), told[1].state_digest());
  EXPECT_TRUE(one->serves());
  EXPECT_FALSE(one->has_state()) << "everybody has that one";
  one->check_invariants();
}

TEST_F(Stages, AJoinerFetchesItsStateAndServesWhenAPhaseIsOpenedToIt) {
  const auto stage = made_of(parts(true));
  stage->begin();
  EXPECT_EQ(bench_.told<wire::WantState>(MessageKind::kWantState).size(), 1U);
  EXPECT_TRUE(ready().empty());
  fetch_state(*stage);
  stage->check_invariants();
  const auto told = ready();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].version(), 3U);
  EXPECT_TRUE(stage->has_state());
  EXPECT_FALSE(stage->serves()) << "nobody has said that it has a seat";
  ASSERT_TRUE(open(*stage, 3).has_value());
  EXPECT_TRUE(stage->serves());
  stage->check_invariants();
}

TEST_F(Stages, AJoinerAppliesTheCommitsThatItHeardOfMeanwhile) {
  const auto stage = made_of(parts(true));
  stage->begin();
  fetch_state(*stage);
  ready();
  ASSERT_TRUE(skip(*stage, 3).has_value());
  ASSERT_TRUE(skip(*stage, 4).has_value());
  bench_.run();
  EXPECT_EQ(stage->committed(), Version{5});
  stage->check_invariants();
}

// FreezeState for the version that a commit leads to would fail before it.
TEST_F(Stages, WhatFollowsACommitWaitsUntilThatIsApplied) {
  const auto stage = made_of(parts(false));
  stage->begin();
  bench_.run();
  commit_what_it_lacks(*stage);
  ASSERT_TRUE(freeze(*stage, 1).has_value());
  EXPECT_TRUE(bench_.told<wire::StateFrozen>(MessageKind::kStateFrozen).empty());
  bring_what_it_lacks(*stage);
  const auto frozen = bench_.told<wire::StateFrozen>(MessageKind::kStateFrozen);
  ASSERT_EQ(frozen.size(), 1U);
  EXPECT_EQ(frozen[0].version(), 1U);
  EXPECT_FALSE(bench_.failed().has_value());
}

TEST_F(Stages, WhatDoesNotFitWhenItsTurnComesEndsThePeer) {
  const auto stage = made_of(parts(false));
  stage->begin();
  bench_.run();
  commit_what_it_lacks(*stage);
  ASSERT_TRUE(freeze(*stage, 7).has_value()) << "it waits";
  EXPECT_FALSE(bench_.failed().has_value());
  bring_what_it_lacks(*stage);
  ASSERT_TRUE(bench_.failed().has_value());
  EXPECT_NE(bench_.failed()->find("does not fit: asked to freeze version 7, has 1"),
            std::string::npos)
      << *bench_.failed();
}

TEST_F(Stages, WhatWaitsHasABound) {
  const auto stage = made_of(parts(false));
  stage->begin();
  bench_.run();
  commit_what_it_lacks(*stage);
  for (std::size_t i = 0; i < CoordinatorInbox::kWaitingMax; ++i)
    ASSERT_TRUE(freeze(*stage, 1).has_value());
  EXPECT_EQ(freeze(*stage, 1).error().code, ErrorCode::kCorrupt);
}

TEST_F(Stages, WhatWaitedForACoordinatorThatIsGoneIsVoid) {
  const auto stage = made_of(parts(false));
  stage->begin();
  bench_.run();
  commit_what_it_lacks(*stage);
  ASSERT_TRUE(freeze(*stage, 1).has_value());
  stage->on_coordinator_lost();
  bring_what_it_lacks(*stage);
  EXPECT_TRUE(bench_.told<wire::StateFrozen>(MessageKind::kStateFrozen).empty());
  const wire::Holdings holdings = stage->holdings();  // the commit itself stands
  EXPECT_EQ(holdings.version(), 1U);
  EXPECT_EQ(holdings.stepped(), 1U);
}

TEST_F(Stages, WhatCoordinatorsOrPeersDoNotSendIsRefused) {
  const auto stage = made_of(parts(false));
  stage->begin();
  bench_.run();
  EXPECT_EQ(said(*stage, MessageKind::kHello, wire::Hello()).error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(
      stage->on_peer(bench_.other(), make_frame(MessageKind::kCommit, wire::Commit())).has_value());
}

TEST_F(Stages, AFrozenStateIsServedAndWhatIsNotHeldIsSaidToBeMissing) {
  const auto stage = made_of(parts(false));
  stage->begin();
  bench_.run();
  wire::PieceRequest request;
  *request.mutable_seat() = to_wire(bench_.other());
  request.mutable_blob()->set_state(0);
  const auto ask = [&] {
    EXPECT_TRUE(stage->on_peer(bench_.other(), make_frame(MessageKind::kPieceRequest, request))
                    .has_value());
    return bench_.sent<wire::Piece>(MessageKind::kPiece);
  };
  const MarkExpected not_held("pieces.not_held");
  ASSERT_EQ(ask().size(), 1U);
  ASSERT_TRUE(freeze(*stage, 0).has_value());
  bench_.run();
  const auto held = ask();
  ASSERT_EQ(held.size(), 1U);
  EXPECT_FALSE(held[0].missing());
  request.mutable_blob()->set_stage(1);
  EXPECT_TRUE(ask().at(0).missing()) << "another stage's";
}

TEST_F(Stages, AnHeirGoesOnWithWhatItsShadowHad) {
  std::shared_ptr<SeatedStage> shadow = made_of(shadow_parts());
  shadow->begin();
  fetch_state(*shadow);
  const auto before = ready();
  ASSERT_EQ(before.size(), 1U);
  bench_.told<wire::WantState>(MessageKind::kWantState);
  SeatedStageParts made = parts(true);
  made.heritage = shadow;
  const auto stage = made_of(std::move(made));
  stage->begin();
  const auto told = ready();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].version(), 3U);
  EXPECT_EQ(told[0].state_digest(), before[0].state_digest());
  EXPECT_TRUE(bench_.told<wire::WantState>(MessageKind::kWantState).empty());
  EXPECT_EQ(shadow.use_count(), 1) << "it lets go of what it has taken over";
  stage->check_invariants();
}

TEST_F(Stages, ACopyIsKeptOfWhatIsCommitted) {
  const auto stage = made_of(parts(true));
  stage->begin();
  fetch_state(*stage);
  const auto kept = stage->keep();
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ((*kept)->version, Version{3});
  EXPECT_EQ((*kept)->stage, StageId{0});
  EXPECT_EQ((*kept)->bytes.size(), stage->state_bytes());
}

// ---- ShadowStages -------------------------------------------------------------------------------

class Shadows : public Stages {
 protected:
  ~Shadows() override { shadows_.check_invariants(); }

  // Of stage `stage` of as many as the bench has, under the bench's peer.
  Seat follow() {
    shadows_.follow(shadow_parts());
    return bench_.self();
  }
  std::size_t wanted() { return bench_.told<wire::WantState>(MessageKind::kWantState).size(); }

  ShadowStages shadows_{bench_.context().runtime, bench_.context().queue, bench_.context().links};
};

TEST_F(Shadows, OneThatFollowsAStageHasAName) {
  EXPECT_TRUE(shadows_.empty());
  const Seat name = follow();
  EXPECT_EQ(wanted(), 1U);
  ASSERT_NE(shadows_.find(name), nullptr);
  EXPECT_EQ(shadows_.find({name.peer, name.stage, Incarnation{2}}), nullptr)
      << "that is one of a later seat";
  EXPECT_EQ(shadows_.find({name.peer, StageId{1}, name.incarnation}), nullptr);
  EXPECT_FALSE(shadows_.find(name)->serves());
}

TEST_F(Shadows, OneThatEndsSaysNothingMoreWhileTheDeviceStillHasItsJobs) {
  const Seat name = follow();
  wanted();
  fetch_state(*shadows_.find(name));
  ASSERT_EQ(ready().size(), 1U);
  ASSERT_TRUE(skip(*shadows_.find(name), 3).has_value());
  shadows_.drop(name.stage);  // the device is about to step it
  EXPECT_EQ(shadows_.find(name), nullptr);
  EXPECT_TRUE(ready().empty());
  EXPECT_FALSE(bench_.failed().has_value());
  shadows_.drop(name.stage);  // again: nothing
}

TEST_F(Shadows, AnotherOneOfTheSameStageTakesItsPlace) {
  const Seat name = follow();
  SeatedStage* const first = shadows_.find(name);
  fetch_state(*first);
  ready();
  wanted();
  follow();
  EXPECT_EQ(wanted(), 1U);
  EXPECT_FALSE(shadows_.find(name)->has_state()) << "it begins with nothing";
}

TEST_F(Shadows, WhoeverTakesOneHasAllOfIt) {
  const Seat name = follow();
  fetch_state(*shadows_.find(name));
  const auto taken = shadows_.take(name.stage);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->committed(), Version{3});
  EXPECT_TRUE(shadows_.empty());
  EXPECT_EQ(shadows_.take(name.stage), nullptr);
}

TEST_F(Shadows, WithItsHolderLostAStateIsWantedAnew) {
  const Seat name = follow();
  wanted();
  ASSERT_TRUE(said(*shadows_.find(name), MessageKind::kStateOffer, offer()).has_value());
  shadows_.on_peer_lost(bench_.other());
  bench_.run(knobs().state_retry + 1s);
  EXPECT_EQ(wanted(), 1U);
}

// ---- StageSave ----------------------------------------------------------------------------------

class Saving : public testing::Test {
 protected:
  Saving() {
    bench_.context().call_coordinator = [this](Frame frame,
                                               std::function<void(Result<Frame>)> reply) {
      pieces_.push_back(*parse<wire::CheckpointPiece>(frame));
      for (const SharedBytes& part : frame.payload) hash_.update(part.view());
      replies_.push_back(std::move(reply));
    };
  }
  void begin(const std::string& name, std::uint64_t version = 0) {
    wire::SaveStage save;
    save.set_version(version);
    save.set_checkpoint(name);
    save_.begin(save, Version{0});
  }
  // The device changes every parameter, behind what it has to do already.
  void change_parameters() {
    bench_.jobs().run(
        [this]() -> Result<void> {
          for (std::byte& byte : bench_.context().model.parameters()) byte = std::byte{0x11};
          return {};
        },
        [] {});
  }

  static RunConfig of_many_pieces() {
    RunConfig config = small_run(1, 2);
    config.model.d_model = 128;
    return config;
  }
  void take_all() {
    for (bench_.run(); !replies_.empty(); bench_.run())
      for (const auto& reply : std::exchange(replies_, {}))
        reply(make_frame(MessageKind::kCheckpointPieceReply, wire::CheckpointPieceReply()));
  }

  StageBench bench_{of_many_pieces(), 0, 0};
  std::vector<wire::CheckpointPiece> pieces_;
  std::vector<std::function<void(Result<Frame>)>> replies_;
  Sha256 hash_;
  StageSave save_{bench_.context(), bench_.jobs()};
};

TEST_F(Saving, AnotherVersionThanTheCommittedOneIsRefused) {
  begin("step-4", 4);
  ASSERT_EQ(pieces_.size(), 1U);
  EXPECT_EQ(pieces_[0].checkpoint(), "step-4");
  EXPECT_EQ(pieces_[0].error(), "asked to save version 4, it has 0");
  EXPECT_FALSE(bench_.failed().has_value()) << "the stage serves on";
}

TEST_F(Saving, AFileIsSentPieceByPieceWithTheHashOfItsBytes) {
  begin("step-0");
  bench_.run();
  EXPECT_EQ(pieces_.size(), 1U) << "the next one follows the answer";
  take_all();
  ASSERT_GT(pieces_.size(), 1U);
  EXPECT_EQ(from_wire(pieces_[0].seat()), bench_.self());
  EXPECT_EQ(pieces_[0].checkpoint(), "step-0");
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    EXPECT_EQ(pieces_[i].offset(), i * Limits::checkpoint_piece_bytes);
    EXPECT_EQ(pieces_[i].last(), i + 1 == pieces_.size());
  }
  EXPECT_EQ(pieces_.back().sha256(), hash_.finish_hex());
  EXPECT_GT(pieces_.back().size(), bench_.context().model.layout().bytes());
}

TEST_F(Saving, WhatIsSentIsTheVersionAskedForWhateverIsSteppedMeanwhile) {
  const auto saved = [this] {
    take_all();
    return pieces_.back().sha256();
  };
  begin("one");
  const std::string before = saved();
  begin("another");
  change_parameters();
  EXPECT_EQ(saved(), before);
  begin("changed");
  EXPECT_NE(saved(), before);
}

TEST_F(Saving, AnUploadThatFailsIsNobodysEnd) {
  begin("step-0");
  bench_.run();
  ASSERT_EQ(replies_.size(), 1U);
  std::exchange(replies_, {})[0](fail(ErrorCode::kRefused, "nobody asked for it"));
  take_all();
  EXPECT_FALSE(bench_.failed().has_value());
  EXPECT_EQ(pieces_.size(), 1U);
}

TEST_F(Saving, OneThatEndsSendsNothingMore) {
  begin("step-0");
  bench_.run();
  save_.silence();
  take_all();
  EXPECT_EQ(pieces_.size(), 1U);
}

}  // namespace
}  // namespace swarmline
