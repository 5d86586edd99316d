// A whole swarm of nodes in one process and on one runtime, as a program would embed them: no
// command, no child process, sockets on loopback.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint_diff.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/config/link_security.h"
#include "engine/identity/key_file.h"
#include "engine/net/tcp/tcp_network.h"
#include "node/admin_client.h"
#include "node/coordinator_node.h"
#include "node/peer_node.h"
#include "pipeline/protocol/run_status.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

constexpr Duration kRunLimit = std::chrono::seconds(60);

// A coordinator and as many peers as the run wants, started once it listens.
class Swarm {
 public:
  Swarm(AsioRuntime& runtime, RunConfig config) : runtime_(runtime), config_(std::move(config)) {
    coordinator_.emplace(
        runtime_, CoordinatorNodeOptions{.config = config_},
        CoordinatorNode::Handlers{
            .on_begun = [this](RunStart start) { begun_ = start; },
            .on_listening = [this](const Address& at,
                                   const std::string& join) { start_peers(at, join); },
            .on_finished = [this](Result<RunOutcome> ended) { outcome_ = std::move(ended); }});
  }

  // Until the coordinator and all peers have ended.
  bool run() {
    const auto opened = coordinator_->open();
    EXPECT_TRUE(opened) << opened.error().what;
    if (!opened) return false;
    coordinator_->start();
    return runtime_.run_until([this] { return outcome_ && peers_ended_.size() == peers_.size(); },
                              kRunLimit);
  }

  CoordinatorNode& coordinator() { return *coordinator_; }
  std::optional<RunStart> begun() const { return begun_; }
  const std::optional<Result<RunOutcome>>& outcome() const { return outcome_; }
  const std::vector<PeerOutcome>& peers_ended() const { return peers_ended_; }

 private:
  void start_peers(const Address& at, const std::string& join) {
    const auto invite = parse_join_string(join);
    EXPECT_EQ(invite.has_value(), wants_keys(config_));
    for (std::uint32_t i = 0; i < 3; ++i) {
      const auto guard =
          invite ? std::make_shared<PeerGuard>(Identity::make(), *invite, runtime_) : nullptr;
      peers_.push_back(std::make_unique<PeerNode>(
          runtime_,
          PeerNodeOptions{.coordinators = {at},
                          .machine = {.data_root = "/"},
                          .name = "peer-" + std::to_string(i + 1),
                          .guard = guard,
                          .make_model = make_fake_model},
          [this](PeerOutcome ended) { peers_ended_.push_back(std::move(ended)); }));
      const auto opened = peers_.back()->open();
      ASSERT_TRUE(opened) << opened.error().what;
      peers_.back()->start();
    }
  }

  AsioRuntime& runtime_;
  RunConfig config_;
  std::optional<CoordinatorNode> coordinator_;
  std::vector<std::unique_ptr<PeerNode>> peers_;
  std::optional<RunStart> begun_;
  std::optional<Result<RunOutcome>> outcome_;
  std::vector<PeerOutcome> peers_ended_;
};

class NodeTest : public testing::Test {
 protected:
  NodeTest() {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += std::to_string(i * i) + (i % 9 == 0 ? "\n" : " ");
    config_.run.name = "embedded";
    config_.run.dir = folder_.at("runs");
    config_.run.steps = 4;
    config_.data.files = {folder_.write("text.txt", text)};
    config_.model.layers = 4;
    config_.model.d_model = 16;
    config_.model.heads = 2;
    config_.model.dtype = DType::kF64;
    config_.batch = {.batch = 4, .microbatch = 1, .sequence = 8};
    config_.pipeline.stages = 2;
    config_.pipeline.peers = {1, 2};
    config_.codec.forward = config_.codec.backward = "none";
    config_.eval.sequences_max = 2;
    config_.checkpoint.optimizer = true;
  }

  void expect_trained(Swarm& swarm, std::uint64_t steps) {
    ASSERT_TRUE(swarm.run());
    const Result<RunOutcome>& outcome = *swarm.outcome();
    ASSERT_TRUE(outcome) << outcome.error().what;
    EXPECT_EQ(outcome->exit_code, 0) << outcome->sentence;
    EXPECT_EQ(swarm.peers_ended().size(), 3U);
    for (const PeerOutcome& peer : swarm.peers_ended())
      EXPECT_EQ(peer.exit_code, 0) << peer.sentence;
    const RunFolder& folder = swarm.coordinator().folder();
    const auto status = parse_status(folder.final_status().value_or(""));
    ASSERT_TRUE(status) << status.error().what;
    EXPECT_EQ(status->state, "done");
    EXPECT_EQ(status->step, steps);
    EXPECT_FALSE(folder.read_address());
    const auto newest = latest_checkpoint(folder.checkpoints());
    ASSERT_TRUE(newest && *newest);
    EXPECT_EQ((*newest)->step, steps);
  }

  TempFolder folder_;
  RunConfig config_;
  AsioRuntime runtime_;
};

TEST_F(NodeTest, ASwarmInOneProcessTrains) {
  Swarm swarm(runtime_, config_);
  expect_trained(swarm, 4);
  EXPECT_EQ(swarm.begun(), RunStart::kNew);
}

TEST_F(NodeTest, ASwarmBetweenKeysTrains) {
  config_.security.loopback = true;
  Swarm swarm(runtime_, config_);
  expect_trained(swarm, 4);
  const auto book = read_invites(swarm.coordinator().folder());
  ASSERT_TRUE(book && book->invites().size() == 1);
  EXPECT_EQ(book->invites()[0].admitted.size(), 3U);
}

// What each may ask a coordinator for, its invite says.
TEST_F(NodeTest, WhoMayOnlyLookMayNotStop) {
  const MarkExpected rule("reign.not_invited_for_that");
  config_.security.loopback = true;
  std::optional<Address> at;
  bool ended = false;
  CoordinatorNode node(
      runtime_, {.config = config_},
      {.on_listening = [&](const Address& bound, const std::string&) { at = bound; },
       .on_finished = [&](auto) { ended = true; }});
  ASSERT_TRUE(node.open());
  node.start();
  ASSERT_TRUE(runtime_.run_until([&] { return at.has_value(); }, kRunLimit));
  const auto ask = [&](InviteScope scope, bool stops) {
    const Invite invite = make_invite(scope, runtime_.wall_seconds(), 100, 0);
    EXPECT_TRUE(add_invite(node.folder(), invite));
    const auto join =
        parse_join_string(*join_string_of(node.folder(), config_.run.name, invite, {*at}));
    TcpNetwork network(runtime_, {.guard = std::make_shared<InviteGuard>(*join)});
    AdminClient client(runtime_, network, *at, "");
    std::optional<Result<std::string>> answer;
    const auto heard = [&](Result<std::string> text) { answer = std::move(text); };
    stops ? client.stop(true, heard) : client.status(heard);
    EXPECT_TRUE(runtime_.run_until([&] { return answer.has_value(); }, kRunLimit));
    return answer->has_value();
  };
  EXPECT_TRUE(ask(InviteScope::kObserver, false));
  EXPECT_FALSE(ask(InviteScope::kObserver, true));
  EXPECT_FALSE(ask(InviteScope::kPeer, true));
  EXPECT_FALSE(ended);
  EXPECT_TRUE(ask(InviteScope::kAdmin, true));
  EXPECT_TRUE(runtime_.run_until([&] { return ended; }, kRunLimit));
}

// Somebody has the run's key, and a link that it was good for.
TEST_F(NodeTest, ALinkOfTheKeyFromBeforeIsClosedAtItsNextRequest) {
  const MarkExpected rule("link_scope.key_of_before");
  config_.security.loopback = true;
  std::optional<Address> at;
  bool ended = false;
  CoordinatorNode node(
      runtime_, {.config = config_},
      {.on_listening = [&](const Address& bound, const std::string&) { at = bound; },
       .on_finished = [&](auto) { ended = true; }});
  ASSERT_TRUE(node.open());
  node.start();
  ASSERT_TRUE(runtime_.run_until([&] { return at.has_value(); }, kRunLimit));
  const auto ask = [&](AdminClient& client) {
    std::optional<bool> answered;
    client.status([&](const Result<std::string>& text) { answered = text.has_value(); });
    EXPECT_TRUE(runtime_.run_until([&] { return answered.has_value(); }, kRunLimit));
    return answered.value_or(false);
  };
  const std::string path = node.folder().run_key();
  TcpNetwork stolen(runtime_, {.guard = std::make_shared<OwnerGuard>(*load_key(path))});
  TcpNetwork owned(runtime_, {.guard = *node.folder().owner_guard()});
  AdminClient thief(runtime_, stolen, *at, ""), owner(runtime_, owned, *at, "");
  EXPECT_TRUE(ask(thief) && ask(owner));
  ASSERT_TRUE(rotate_run_key(path, config_.run.name, runtime_.wall_seconds(), 3600));
  ASSERT_TRUE(runtime_.run_until([&] { return !ask(thief); }, kRunLimit));
  EXPECT_FALSE(ask(thief)) << "nor does a new link help";
  EXPECT_TRUE(runtime_.run_until([&] { return ask(owner); }, kRunLimit)) << "it reads the new one";
  node.request_stop();
  node.request_stop();
  EXPECT_TRUE(runtime_.run_until([&] { return ended; }, kRunLimit));
}

// Its sums are exact: whoever computes, each microbatch counts once.
TEST_F(NodeTest, OtherPeersMakeTheSameBits) {
  std::vector<std::string> folders;
  for (const std::vector<std::uint32_t>& peers :
       {std::vector<std::uint32_t>{1, 2}, std::vector<std::uint32_t>{2, 1}}) {
    config_.run.name = "run-" + std::to_string(folders.size());
    config_.pipeline.peers = peers;
    Swarm swarm(runtime_, config_);
    expect_trained(swarm, 4);
    folders.push_back(swarm.coordinator().folder().path());
  }
  const auto diff = diff_checkpoints(folders[0], folders[1]);
  ASSERT_TRUE(diff) << diff.error().what;
  EXPECT_FALSE(diff->tensors.empty());
  EXPECT_TRUE(diff->equal_bits()) << to_text(*diff);
}

TEST_F(NodeTest, AFinishedRunIsNotBegunAgainAndALongerOneGoesOn) {
  {
    Swarm swarm(runtime_, config_);
    expect_trained(swarm, 4);
  }
  {
    Swarm again(runtime_, config_);
    ASSERT_TRUE(again.run());
    EXPECT_EQ(again.begun(), RunStart::kFinished);
    ASSERT_TRUE(*again.outcome());
    EXPECT_EQ((*again.outcome())->exit_code, 0);
    EXPECT_TRUE((*again.outcome())->sentence.empty());
    EXPECT_TRUE(again.peers_ended().empty());
  }
  config_.run.steps = 6;
  Swarm longer(runtime_, config_);
  expect_trained(longer, 6);
  EXPECT_EQ(longer.begun(), RunStart::kResumes);
}

TEST_F(NodeTest, AStopEndsTheRunWithACheckpoint) {
  config_.run.steps = 100'000;
  Swarm swarm(runtime_, config_);
  std::function<void()> look = [&] {
    const auto status = parse_status(swarm.coordinator().status_json());
    if (status && status->step > 2) return swarm.coordinator().request_stop();
    runtime_.call_after(std::chrono::milliseconds(10), look);
  };
  look();
  ASSERT_TRUE(swarm.run());
  ASSERT_TRUE(*swarm.outcome());
  EXPECT_EQ((*swarm.outcome())->exit_code, 0) << (*swarm.outcome())->sentence;
  const auto newest = latest_checkpoint(swarm.coordinator().folder().checkpoints());
  ASSERT_TRUE(newest && *newest);
  EXPECT_GT((*newest)->step, 0U);
}

TEST_F(NodeTest, AMistakeIsSaidBeforeAnythingRuns) {
  config_.data.files = {folder_.at("nowhere.txt")};
  CoordinatorNode node(runtime_, {.config = config_}, {.on_finished = [](auto) { FAIL(); }});
  const auto opened = node.open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kUserMistake);
}

TEST_F(NodeTest, AStandbyLeadsWhenNobodyElseDoes) {
  std::vector<std::string> seen;
  CoordinatorNode standby(
      runtime_, {.config = config_, .standby = true},
      {.on_begun = [&](RunStart) { seen.push_back("begun"); },
       .on_standing_by = [&] { seen.push_back("stands by"); },
       .on_listening = [&](const Address&, const std::string&) { seen.push_back("listens"); },
       .on_finished = [&](auto) { seen.push_back("finished"); }});
  const auto opened = standby.open();
  ASSERT_TRUE(opened) << opened.error().what;
  standby.start();
  EXPECT_EQ(seen, (std::vector<std::string>{"stands by"}));
  EXPECT_TRUE(runtime_.run_until([&] { return seen.size() == 3; }, kRunLimit));
  standby.request_stop();
  standby.request_stop();  // nobody is there to finish a step
  EXPECT_TRUE(runtime_.run_until([&] { return seen.size() == 4; }, kRunLimit));
  EXPECT_EQ(seen, (std::vector<std::string>{"stands by", "begun", "listens", "finished"}));
}

}  // namespace
}  // namespace swarmline
