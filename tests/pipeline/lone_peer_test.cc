// A stage peer whose coordinator and mates are played by the test.
#include <optional>

#include <gtest/gtest.h>

#include "base/check.h"
#include "engine/config/load.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/synthetic_source.h"
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
                                                        if (kind_of(frame) == MessageKind::kHello)
                                                          hello_ = frame.request;
                                                      },
                                                  .on_closed = [](Error) {}});
                                   });
    SWARMLINE_CHECK(bound.has_value());
  }
  template <typename Message>
  void say(MessageKind kind, const Message& message) {
    links_.at(0)->send(make_frame(kind, message));
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
    wire::PeerInfo* mate = membership.add_mates();
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
  std::uint64_t asked(SimNodeId mate) { return heard_[{mate, MessageKind::kPieceRequest}]; }

  const Phase step_{PhaseKind::kTrain, 0};
  RunConfig config_ = small_run(2, 2);
  SimRuntime runtime_{1};
  SimNetwork network_;
  SimDevice device_;
  std::map<SimNodeId, std::shared_ptr<Connection>> links_;  // newest
  std::map<std::pair<SimNodeId, MessageKind>, std::uint64_t> heard_;
  std::uint64_t hello_ = 0;
  std::optional<PeerOutcome> outcome_;
  std::unique_ptr<StagePeer> peer_;
};

// Until the commit the coordinator names another holder when one is lost; afterwards it does not.
TEST_F(LonePeer, AResultWhoseHolderIsLostIsFetchedFromAMateOnceItIsCommitted) {
  welcome();
  wire::FetchReduced fetch;
  *fetch.mutable_phase() = to_wire(step_);
  fetch.set_group(1);
  fetch.set_digest(kDigest);
  wire::GroupMember* holder = fetch.add_holders();
  *holder->mutable_seat() = to_wire(seat(3));
  holder->set_address(address(3));
  say(MessageKind::kFetchReduced, fetch);
  EXPECT_GT(asked(3), 0U);
  wire::PeerLost lost;
  *lost.mutable_seat() = to_wire(seat(3));
  say(MessageKind::kPeerLost, lost);
  runtime_.run_for(5s);
  EXPECT_EQ(asked(2), 0U);
  wire::Commit commit;
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

}  // namespace
}  // namespace swarmline
