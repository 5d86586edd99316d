// A stage peer whose coordinator and mates are played by the test.
#include <optional>

#include <gtest/gtest.h>

#include "base/check.h"
#include "engine/config/load.h"
#include "pipeline/protocol/knobs.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/synthetic_source.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_config.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kVocab = 31;
constexpr std::uint64_t kDigest = 77;

// Node 0 is the coordinator, node 1 the peer, at the last of two stages; 2 and 3 are its mates.
class LonePeer : public testing::Test {
 protected:
  LonePeer() : network_(runtime_, {}), device_(runtime_.node(1), {}) {
    for (const SimNodeId node : {0U, 2U, 3U}) listen(node);
    StagePeerOptions options;
    options.coordinator = {"sim", 100};
    options.machine.listen = "sim:0";
    options.make_model = make_fake_model;
    options.make_source = [](const RunConfig& c) -> Result<std::unique_ptr<MicrobatchSource>> {
      return std::make_unique<SyntheticSource>(c.run.seed, kVocab, c.batch.sequence);
    };
    peer_ =
        std::make_unique<StagePeer>(runtime_.node(1), network_.node(1), device_, std::move(options),
                                    [this](PeerOutcome ended) { outcome_ = std::move(ended); });
    peer_->start();
    runtime_.run_for(10ms);
  }

  static Seat seat(std::uint32_t peer) { return {PeerId{peer}, StageId{1}, Incarnation{1}}; }
  static std::string address(std::uint32_t node) { return "sim:" + std::to_string(100 + node); }

  void listen(SimNodeId node) {
    const auto bound =
        network_.node(node).listen({"sim", static_cast<std::uint16_t>(100 + node)},
                                   [this, node](std::shared_ptr<Connection> made) {
                                     links_[node] = made;
                                     made->start({.on_frame =
                                                      [this, node](Frame frame) {
                                                        ++heard_[{node, kind_of(frame)}];
                                                        last_[{node, kind_of(frame)}] = frame;
                                                        if (kind_of(frame) == MessageKind::kHello)
                                                          hello_ = frame.request;
                                                      },
                                                  .on_closed = [](Error) {}});
                                   });
    SWARMLINE_CHECK(bound.has_value());
  }
  template <typename Message>
  void say(MessageKind kind, const Message& message, SimNodeId node = 0) {
    links_.at(node)->send(make_frame(kind, message));
    runtime_.run_for(20ms);
  }
  void welcome() {
    wire::Welcome welcome;
    welcome.set_config_toml(to_toml(config_));
    welcome.set_run_id("simulated");
    welcome.set_vocab(kVocab);
    *welcome.mutable_seat() = to_wire(seat(1));
    for (std::uint32_t stage = 0; stage < 2; ++stage) {
      wire::StageCut* cut = welcome.add_cuts();
      cut->set_first_layer(stage * config_.model.layers / 2);
      cut->set_last_layer((stage + 1) * config_.model.layers / 2);
    }
    welcome.set_heartbeat_seconds(0.5);
    Frame reply = make_frame(MessageKind::kWelcome, welcome);
    reply.request = hello_;
    reply.flags = kFrameFlagReply;
    links_.at(0)->send(std::move(reply));
    runtime_.run_for(20ms);
    wire::Membership membership;
    *membership.mutable_to() = to_wire(seat(1));
    wire::Roster* roster = membership.add_rosters();
    roster->set_stage(seat(1).stage.value);
    roster->set_serial(1);
    wire::GroupMember* mate = roster->add_members();
    *mate->mutable_seat() = to_wire(seat(2));
    mate->set_address(address(2));
    say(MessageKind::kMembership, membership);
    wire::OpenPhase open;
    *open.mutable_phase() = to_wire(step_);
    open.set_microbatches(config_.microbatches_per_step());
    wire::BoundaryCodecs* codecs = open.add_codecs();
    codecs->set_forward("none");
    codecs->set_backward("none");
    say(MessageKind::kOpenPhase, open);
  }
  // The coordinator has it fetch what `holder` has, who is reached as `linked`.
  void fetch_from(const Seat& linked, const Seat& holder) {
    wire::FetchReduced fetch;
    *fetch.mutable_to() = to_wire(seat(1));
    *fetch.mutable_phase() = to_wire(step_);
    fetch.set_group(1);
    fetch.set_digest(kDigest);
    wire::GroupMember* named = fetch.add_holders();
    *named->mutable_seat() = to_wire(linked);
    named->set_address(address(linked.peer.value));
    if (holder != linked) *named->mutable_shadow() = to_wire(holder);
    say(MessageKind::kFetchReduced, fetch);
  }
  std::uint64_t asked(SimNodeId mate) { return heard_[{mate, MessageKind::kPieceRequest}]; }

  const Phase step_{PhaseKind::kTrain, 0};
  RunConfig config_ = small_run(2, 2);
  SimRuntime runtime_{1};
  SimNetwork network_;
  SimDevice device_;
  std::map<SimNodeId, std::shared_ptr<Connection>> links_;  // newest
  std::map<std::pair<SimNodeId, MessageKind>, std::uint64_t> heard_;
  std::map<std::pair<SimNodeId, MessageKind>, Frame> last_;
  std::uint64_t hello_ = 0;
  std::optional<PeerOutcome> outcome_;
  std::unique_ptr<StagePeer> peer_;
};

// Until the commit the coordinator names another holder when one is lost; afterwards it does not.
TEST_F(LonePeer, AResultWhoseHolderIsLostIsFetchedFromAMateOnceItIsCommitted) {
  welcome();
  fetch_from(seat(3), seat(3));
  EXPECT_GT(asked(3), 0U);
  wire::PeerLost lost;
  *lost.mutable_seat() = to_wire(seat(3));
  say(MessageKind::kPeerLost, lost);
  runtime_.run_for(5s);
  EXPECT_EQ(asked(2), 0U);
  wire::Commit commit;
  *commit.mutable_to() = to_wire(seat(1));
  wire::GroupDigest* group = commit.add_groups();
  group->set_group(1);
  group->set_digest(kDigest);
  commit.set_learning_rate(1e-3);
  commit.set_clip_scale(1);
  commit.set_bias_correction1(0.1);
  commit.set_bias_correction2(0.1);
  say(MessageKind::kCommit, commit);
  runtime_.run_for(1s);
  EXPECT_GT(asked(2), 0U);
  EXPECT_FALSE(outcome_.has_value()) << outcome_->sentence;
}

TEST_F(LonePeer, WhoIsAskedAndWhoAsksAreNamedWhereALinkLeadsToTwoStages) {
  welcome();
  const Seat shadow{PeerId{3}, StageId{0}, Incarnation{1}};
  fetch_from(seat(3), shadow);
  ASSERT_GT(asked(3), 0U);
  const auto request = parse<wire::PieceRequest>(last_[{3, MessageKind::kPieceRequest}]);
  EXPECT_EQ(from_wire(request->to()), shadow);
  EXPECT_EQ(from_wire(request->seat()), seat(1));
  // What comes for another of this peer's is none of its business.
  const std::uint64_t before = asked(3);
  wire::Piece piece;
  *piece.mutable_blob() = request->blob();
  piece.set_piece(request->piece());
  piece.set_checksum(1);
  *piece.mutable_to() = to_wire(Seat{PeerId{1}, StageId{0}, Incarnation{1}});
  say(MessageKind::kPiece, piece, 3);
  EXPECT_EQ(asked(3), before);
  *piece.mutable_to() = request->seat();
  say(MessageKind::kPiece, piece, 3);
  EXPECT_GT(asked(3), before) << "it is damaged: asked again";
}

TEST_F(LonePeer, WhoAsksAStageThatHasEndedHearsThatNothingIsHeld) {
  const MarkExpected ended("peer.asked_of_a_stage_that_has_ended");
  welcome();
  fetch_from(seat(3), seat(3));
  wire::PieceRequest request;
  request.mutable_blob()->mutable_reduced()->set_group(1);
  *request.mutable_seat() = to_wire(seat(3));
  *request.mutable_to() = to_wire(Seat{PeerId{1}, StageId{0}, Incarnation{1}});
  say(MessageKind::kPieceRequest, request, 3);
  ASSERT_TRUE(last_.contains({3, MessageKind::kPiece}));
  const auto piece = parse<wire::Piece>(last_[{3, MessageKind::kPiece}]);
  EXPECT_TRUE(piece->missing());
  EXPECT_EQ(from_wire(piece->to()), seat(3));
}

TEST_F(LonePeer, WhatShouldSayWhomItIsForAndDoesNotEndsIt) {
  welcome();
  say(MessageKind::kCommit, wire::Commit());
  runtime_.run_for(knobs().goodbye_time + 1s);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->sentence, "Commit does not say whom it is for");
}

}  // namespace
}  // namespace swarmline
