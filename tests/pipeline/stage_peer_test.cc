// A peer's life, from seat to seat, under a coordinator that says what the test wants.
#include "pipeline/stage/stage_peer.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/config/load.h"
#include "engine/net/rpc.h"
#include "pipeline/protocol/data_messages.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/doors/sim_device.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_config.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class PeerLife : public testing::Test {
 protected:
  PeerLife() {
    const auto bound = network_.node(5).listen(
        {"sim", 5}, [this](const std::shared_ptr<Connection>& connection) { accept(connection); });
    StagePeerOptions options;
    options.coordinator = *bound;
    options.name = "ann";
    options.machine.listen = "sim:0";
    options.machine.join_patience_seconds = 60;
    options.make_model = [this](const ModelSpec& spec, const StageSpec& stage,
                                const StageModelOptions& how) {
      ++built_;
      if (no_model_) return Result<std::unique_ptr<StageModel>>(std::unexpected(*no_model_));
      return make_fake_model(spec, stage, how);
    };
    options.compare_data = [this](const DataManifest& manifest) {
      HeldData held = held_;
      held.fingerprint = manifest.fingerprint();
      return held;
    };
    peer_ =
        std::make_unique<StagePeer>(runtime_.node(1), network_.node(1), device_, std::move(options),
                                    [this](PeerOutcome outcome) { outcome_ = std::move(outcome); });
  }

  void accept(const std::shared_ptr<Connection>& connection) {
    channel_ = RpcChannel::make(runtime_.node(5), connection);
    channel_->start({
        .on_message = [this](const Frame& frame) { heard_.push_back(frame); },
        .on_request =
            [this](const Frame& frame, const RpcChannel::Respond& respond) {
              hellos_.push_back(*parse<wire::Hello>(frame));
              if (refusal_) return respond(std::unexpected(*refusal_));
              if (wants_data_ && hellos_.back().data().fingerprint() != wants_data_->fingerprint())
                return respond(make_frame(MessageKind::kDataWanted, to_wire(*wants_data_)));
              respond(make_frame(MessageKind::kWelcome, welcome_));
            },
        .on_closed = [](const Error&) {},
    });
  }
  // Stage 1 of 2.
  static wire::Welcome welcome_of(std::uint32_t incarnation) {
    const RunConfig config = small_run(2, 1);
    wire::Welcome welcome;
    welcome.set_term(1);
    welcome.set_run_id("run");
    welcome.set_config_toml(to_toml(config));
    welcome.set_vocab(31);
    *welcome.mutable_seat() = to_wire(Seat{PeerId{4}, StageId{1}, Incarnation{incarnation}});
    for (std::uint32_t stage = 0; stage < 2; ++stage) {
      wire::StageCut* cut = welcome.add_cuts();
      cut->set_first_layer(config.model.layers * stage / 2);
      cut->set_last_layer(config.model.layers * (stage + 1) / 2);
    }
    return welcome;
  }
  void run(Duration time = 500ms) {
    for (Duration passed{}; passed < time; passed += 10ms) {
      runtime_.run_for(10ms);
      peer_->check_invariants();
    }
  }
  void seat() {
    peer_->start();
    run();
    ASSERT_EQ(heard<wire::Ready>(MessageKind::kReady).size(), 1U);
  }
  template <typename Message>
  void say(MessageKind kind, const Message& message) {
    channel_->notify(make_frame(kind, message));
    run(100ms);
  }
  // An empty step is committed, so that there is a state to keep.
  void commit_one() {
    wire::Commit commit;
    *commit.mutable_to() = to_wire(peer_->seat());
    commit.set_skipped(true);
    say(MessageKind::kCommit, commit);
  }
  // Messages of that kind since the last time this was asked.
  template <typename Message>
  std::vector<Message> heard(MessageKind kind) {
    std::vector<Message> found;
    std::erase_if(heard_, [&](const Frame& frame) {
      if (kind_of(frame) != kind) return false;
      found.push_back(*parse<Message>(frame));
      return true;
    });
    return found;
  }

  SimRuntime runtime_{1};
  SimNetwork network_{runtime_, {}};
  SimDevice device_{runtime_.node(1), {}};
  std::shared_ptr<RpcChannel> channel_;
  wire::Welcome welcome_ = welcome_of(1);
  std::optional<Error> refusal_;
  std::optional<DataManifest> wants_data_;
  HeldData held_;
  std::optional<Error> no_model_;
  int built_ = 0;
  std::vector<wire::Hello> hellos_;
  std::vector<Frame> heard_;
  std::optional<PeerOutcome> outcome_;
  std::unique_ptr<StagePeer> peer_;
};

// ---- A seat -------------------------------------------------------------------------------------

TEST_F(PeerLife, ANewcomerBuildsItsStageAndIsReady) {
  seat();
  ASSERT_EQ(hellos_.size(), 1U);
  EXPECT_EQ(hellos_[0].name(), "ann");
  EXPECT_FALSE(hellos_[0].has_previous());
  EXPECT_FALSE(hellos_[0].has_holdings());
  EXPECT_EQ(peer_->seat(), from_wire(welcome_.seat()));
  EXPECT_TRUE(peer_->serves());
  EXPECT_FALSE(heard<wire::Heartbeat>(MessageKind::kHeartbeat).empty());
}

TEST_F(PeerLife, WhoIsRefusedEndsWithTheReason) {
  refusal_ = Error{ErrorCode::kRefused, "it speaks protocol 2"};
  peer_->start();
  run(knobs().goodbye_time + 1s);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->exit_code, 3);
  EXPECT_NE(outcome_->sentence.find("it speaks protocol 2"), std::string::npos);
}

TEST_F(PeerLife, ItComparesTheRunsDataBeforeItGetsASeat) {
  const std::string hash(64, 'f');
  wants_data_ = DataManifest{.folder = "corpus",
                             .files = {{.name = "a", .bytes = 8, .used = 8, .sha256 = hash}}};
  held_.lacks = "there is no file \"corpus/a\"";
  const MarkExpected compares("peer.compares_its_data");
  seat();
  ASSERT_EQ(hellos_.size(), 2U);
  EXPECT_FALSE(hellos_[0].has_data());
  EXPECT_EQ(hellos_[1].data().lacks(), held_.lacks);
  EXPECT_EQ(hellos_[1].data().fingerprint(), wants_data_->fingerprint());
  // It says so to whoever asks later, too; other files are compared anew, and its seat is over.
  wants_data_->files[0].bytes = 9;
  channel_->close();
  run(2s);
  ASSERT_EQ(hellos_.size(), 4U);
  EXPECT_TRUE(hellos_[2].has_holdings());
  EXPECT_FALSE(hellos_[3].has_holdings());
  EXPECT_EQ(hellos_[3].data().fingerprint(), wants_data_->fingerprint());
}

TEST_F(PeerLife, AListOfDataThatCantBeEndsIt) {
  const std::string hash(64, 'f');
  wants_data_ = DataManifest{.folder = "/",
                             .files = {{.name = "../x", .bytes = 8, .used = 8, .sha256 = hash}}};
  peer_->start();
  run(knobs().goodbye_time + 1s);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->exit_code, 1);
  EXPECT_NE(outcome_->sentence.find("the coordinator's list of data files"), std::string::npos);
}

TEST_F(PeerLife, WhoseMachineLacksWhatTheStageNeedsIsRefused) {
  no_model_ = Error{ErrorCode::kUserMistake, "there is no device cuda:7"};
  peer_->start();
  run(knobs().goodbye_time + 1s);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->exit_code, 3);
  EXPECT_EQ(outcome_->sentence, "there is no device cuda:7");
  const auto goodbye = heard<wire::Goodbye>(MessageKind::kGoodbye);
  ASSERT_EQ(goodbye.size(), 1U);
  EXPECT_EQ(goodbye[0].reason(), "there is no device cuda:7");
}

// ---- The seat is over ---------------------------------------------------------------------------

TEST_F(PeerLife, WhoIsFencedStartsOverAsOneThatHadASeat) {
  seat();
  commit_one();
  const Seat before = peer_->seat();
  welcome_ = welcome_of(2);
  const MarkExpected lost("peer.seat_lost");
  wire::Fenced fenced;
  fenced.set_reason("it was silent");
  say(MessageKind::kFenced, fenced);
  run();
  ASSERT_EQ(hellos_.size(), 2U);
  EXPECT_EQ(from_wire(hellos_[1].previous()), before);
  EXPECT_FALSE(hellos_[1].has_holdings());
  EXPECT_FALSE(hellos_[1].has_kept()) << "what it held is nobody's";
  EXPECT_EQ(built_, 2);
  EXPECT_EQ(peer_->seat().incarnation, Incarnation{2});
  EXPECT_EQ(heard<wire::Ready>(MessageKind::kReady).size(), 1U);
}

TEST_F(PeerLife, WhoMayHaveItsSeatAgainKeepsACopyOfItsState) {
  seat();
  commit_one();
  const MarkExpected kept("peer.state_kept");
  wire::Fenced fenced;
  fenced.set_keeps(true);
  say(MessageKind::kFenced, fenced);
  run();
  ASSERT_EQ(hellos_.size(), 2U);
  EXPECT_EQ(hellos_[1].kept().stage(), 1U);
  EXPECT_EQ(hellos_[1].kept().version(), 1U);
}

// ---- Without a coordinator ----------------------------------------------------------------------

TEST_F(PeerLife, AMemberWhoseCoordinatorIsGoneKeepsItsStageForTheNext) {
  seat();
  commit_one();
  welcome_.set_resumed(true);
  welcome_.set_term(2);
  const MarkExpected adrift("peer.adrift"), kept("peer.seat_kept_under_another_coordinator");
  channel_->close();
  run(5s);
  ASSERT_EQ(hellos_.size(), 2U);
  EXPECT_EQ(hellos_[1].holdings().version(), 1U);
  EXPECT_EQ(from_wire(hellos_[1].previous()), peer_->seat());
  EXPECT_EQ(built_, 1) << "its stage is the same one";
  EXPECT_TRUE(peer_->serves());
  EXPECT_TRUE(heard<wire::Ready>(MessageKind::kReady).empty());
}

TEST_F(PeerLife, ACoordinatorThatGaveTheSeatUpMakesItStartOver) {
  seat();
  commit_one();
  welcome_ = welcome_of(2);
  const MarkExpected given_up("peer.seat_given_up_while_adrift"), kept("peer.state_kept");
  channel_->close();
  run(5s);
  EXPECT_EQ(built_, 2);
  EXPECT_EQ(peer_->seat().incarnation, Incarnation{2});
  EXPECT_EQ(heard<wire::Ready>(MessageKind::kReady).size(), 1U);
}

TEST_F(PeerLife, AJoinerWithoutItsStateHasNothingToKeep) {
  welcome_.set_joining(true);
  peer_->start();
  run();
  EXPECT_EQ(heard<wire::WantState>(MessageKind::kWantState).size(), 1U);
  EXPECT_FALSE(peer_->serves());
  const MarkExpected lost("peer.seat_lost");
  channel_->close();
  run(5s);
  ASSERT_EQ(hellos_.size(), 2U);
  EXPECT_FALSE(hellos_[1].has_holdings());
  EXPECT_EQ(built_, 2);
}

// ---- Shadows ------------------------------------------------------------------------------------

TEST_F(PeerLife, AShadowSpeaksUnderItsOwnNameAndEndsWithTheSeat) {
  seat();
  wire::Follow follow;
  follow.set_stage(0);
  say(MessageKind::kFollow, follow);
  const auto wanted = heard<wire::WantState>(MessageKind::kWantState);
  ASSERT_EQ(wanted.size(), 1U);
  EXPECT_EQ(from_wire(wanted[0].seat()), (Seat{PeerId{4}, StageId{0}, Incarnation{1}}));
  wire::Fenced fenced;
  say(MessageKind::kFenced, fenced);
  run();
  EXPECT_EQ(heard<wire::WantState>(MessageKind::kWantState).size(), 0U)
      << "nobody has told the new seat to follow";
}

TEST_F(PeerLife, AShadowsEndIsNotItsPeers) {
  seat();
  wire::Follow follow;
  follow.set_stage(0);
  say(MessageKind::kFollow, follow);
  const Seat shadow{PeerId{4}, StageId{0}, Incarnation{1}};
  const MarkExpected failed("peer.shadow_failed");
  wire::StateOffer nonsense;
  *nonsense.mutable_to() = to_wire(shadow);
  nonsense.set_version(3);
  nonsense.set_bytes(1);
  say(MessageKind::kStateOffer, nonsense);
  const auto goodbye = heard<wire::Goodbye>(MessageKind::kGoodbye);
  ASSERT_EQ(goodbye.size(), 1U);
  EXPECT_EQ(from_wire(goodbye[0].seat()), shadow);
  EXPECT_TRUE(peer_->serves());
  say(MessageKind::kStateOffer, nonsense);  // on its way before it ended
  run(knobs().goodbye_time);
  EXPECT_FALSE(outcome_.has_value());
}

// ---- The end ------------------------------------------------------------------------------------

TEST_F(PeerLife, ItEndsAsItsCoordinatorSays) {
  seat();
  wire::Shutdown shutdown;
  shutdown.set_exit_code(0);
  shutdown.set_reason("finished 4 steps");
  say(MessageKind::kShutdown, shutdown);
  run(knobs().goodbye_time);
  EXPECT_EQ(heard<wire::Goodbye>(MessageKind::kGoodbye).size(), 1U);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->exit_code, 0);
  EXPECT_EQ(outcome_->sentence, "finished 4 steps");
}

TEST_F(PeerLife, WhatDoesNotFitEndsItWithASentence) {
  seat();
  wire::FreezeState freeze;
  freeze.set_version(9);
  say(MessageKind::kFreezeState, freeze);
  run(knobs().goodbye_time);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->exit_code, 1);
  EXPECT_NE(outcome_->sentence.find("does not fit: asked to freeze version 9, has 0"),
            std::string::npos)
      << outcome_->sentence;
}

TEST_F(PeerLife, ANoticeIsSaidAndItLeavesWhenItsTimeIsOver) {
  seat();
  peer_->request_drain(5s);
  run(1s);
  EXPECT_EQ(heard<wire::Leave>(MessageKind::kLeave).size(), 1U);
  EXPECT_FALSE(outcome_.has_value());
  run(4s + knobs().goodbye_time);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->exit_code, 0);
  EXPECT_EQ(hellos_.size(), 1U) << "it looks for no other seat";
}

TEST_F(PeerLife, WhoHasNoSeatLeavesAtOnce) {
  seat();
  refusal_ = Error{ErrorCode::kPeerGone, "wait"};
  say(MessageKind::kFenced, wire::Fenced());
  run(1s);
  ASSERT_FALSE(outcome_.has_value());
  peer_->request_drain(60s);
  run(knobs().goodbye_time);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->exit_code, 0);
  EXPECT_EQ(outcome_->sentence, "left while it had no seat");
}

TEST_F(PeerLife, ANoticeIsSaidAgainToTheNextCoordinator) {
  seat();
  commit_one();
  welcome_.set_resumed(true);
  channel_->close();
  peer_->request_drain(60s);
  run(5s);
  EXPECT_EQ(hellos_.size(), 2U);
  EXPECT_EQ(heard<wire::Leave>(MessageKind::kLeave).size(), 1U);
}

TEST_F(PeerLife, WhoIsToLeaveLooksForNoOtherSeat) {
  seat();
  peer_->request_drain(60s);
  run(100ms);
  say(MessageKind::kFenced, wire::Fenced());
  run(knobs().goodbye_time);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->exit_code, 0);
  EXPECT_EQ(hellos_.size(), 1U);
}

}  // namespace
}  // namespace swarmline
