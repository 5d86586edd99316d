// The coordinator is killed at every kind of moment and begun again on its journal: the run ends as
// if nothing had happened, and its peers keep their seats.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/net/rpc.h"
#include "pipeline/protocol/protocol_version.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/harness/sanitized.h"
#include "tests/pipeline/crash.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig run_of(std::vector<std::uint32_t> peers, std::uint32_t delay) {
  RunConfig config = small_run(std::move(peers), delay);
  config.eval.every_steps = 2;
  config.checkpoint.every_steps = 2;
  config.net.collect_seconds = 5;
  return config;
}

SimClusterOptions options_of(const RunConfig& config) {
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.eval_sequences = 4;
  return options;
}

// To the end, with the ledger recounted at every event.
void finish_checked(Swarm& swarm) {
  SimCluster& cluster = swarm.cluster();
  const bool ended = swarm.until(
      [&] {
        if (!kSanitized) cluster.coordinator().check_invariants();
        return cluster.outcome().has_value();
      },
      3600s);
  ASSERT_TRUE(ended) << cluster.coordinator().status_json();
  ASSERT_EQ(cluster.outcome()->exit_code, 0) << cluster.outcome()->sentence;
}

// No step is committed twice.
void expect_each_step_once(const SimCluster& cluster) {
  std::map<std::string, int> lines;
  for (const std::string& line : cluster.log_lines())
    if (const auto at = line.find("\"kind\":\"step\""); at != std::string::npos) {
      const auto step = line.find("\"step\":", at + 1);
      ++lines[line.substr(step, line.find(',', step) - step)];
    }
  for (const auto& [step, count] : lines) EXPECT_EQ(count, 1) << step;
}

// Each of the first few, then ever fewer.
std::uint64_t next_moment(std::uint64_t nth) {
  if (kSanitized) return 3 * nth;
  return nth < 6 ? nth + 1 : nth * 5 / 4;
}

class Restart : public testing::TestWithParam<std::tuple<MessageKind, std::uint32_t>> {};

TEST_P(Restart, AtAnyMomentChangesNothing) {
  const auto [kind, delay] = GetParam();
  const RunConfig config = run_of({2, 2, 2}, delay);
  std::uint64_t crashes = 0;
  for (std::uint64_t nth = 1; nth < 400; nth = next_moment(nth))
    for (const bool last_through : {false, true}) {
      SCOPED_TRACE(fmt::format("{} number {}{}", to_string(kind), nth,
                               last_through ? ", which gets through" : ""));
      std::vector<const StageModel*> models;
      SimClusterOptions options = options_of(config);
      options.make_model = hooked(
          make_fake_model,
          {.made = [&](StageId, int, const StageModel& model) { models.push_back(&model); }});
      Swarm swarm(std::move(options));
      Crash crash(swarm, {kind, nth, last_through});
      if (!crash.happens(nth % 2 == 0 ? 300ms : 0ms)) continue;
      ++crashes;
      swarm.cluster().restart_coordinator();
      finish_checked(swarm);
      if (HasFatalFailure()) return;
      ASSERT_EQ(swarm.cluster().parameters(), one_each(config));
      expect_each_step_once(swarm.cluster());
      if (events(swarm, "begun_again") > 0) {
        EXPECT_EQ(events(swarm, "new_era"), 0U);
        EXPECT_EQ(events(swarm, "peer_resumed"), 6U);
        EXPECT_EQ(events(swarm, "peer_lost"), 0U);
        for (const StageModel* model : models) EXPECT_EQ(model->saved_graphs(), 0U);
      }
      if (HasFailure()) return;
    }
  EXPECT_GT(crashes, 0U);
}

// Before the first step there is nothing to lose but time. (A peer that finds no coordinator at all
// when it starts says so and ends: all six have connected by then.)
TEST(RestartWhileItForms, PeersComeBackAndTheRunBegins) {
  for (const Duration down : {0ms, 300ms})
    for (Duration at = 9ms; at < 30ms; at += kSanitized ? 2800us : 700us) {
      SCOPED_TRACE(fmt::format("{} s, down for {} s", to_seconds(at), to_seconds(down)));
      const RunConfig config = run_of({2, 2, 2}, 0);
      Swarm swarm(options_of(config));
      swarm.cluster().runtime().run_for(at);
      swarm.cluster().kill_coordinator();
      swarm.cluster().runtime().run_for(down);
      swarm.cluster().restart_coordinator();
      finish_checked(swarm);
      if (HasFatalFailure()) return;
      EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
      expect_each_step_once(swarm.cluster());
    }
}

// A peer dies while there is no coordinator: the others give it up, and what only it had is
// computed again.
TEST(RestartWithLosses, APeerThatDiesMeanwhileIsGivenUp) {
  std::uint64_t crashes = 0;
  for (const std::uint32_t delay : {0U, 1U})
    for (const MessageKind kind : {MessageKind::kReport, MessageKind::kSeal, MessageKind::kReduced,
                                   MessageKind::kCommit, MessageKind::kStepped})
      for (std::uint64_t nth = 1; nth < 24; nth += kSanitized ? 9 : 3)
        for (const std::size_t victim : {0U, 1U, 3U, 5U}) {
          SCOPED_TRACE(
              fmt::format("{} number {}, peer {}, delay {}", to_string(kind), nth, victim, delay));
          const RunConfig config = run_of({2, 2, 2}, delay);
          Swarm swarm(options_of(config));
          Crash crash(swarm, {kind, nth, nth % 2 == 0});
          if (!crash.happens(victim % 2 == 0 ? 0ms : 100ms)) continue;
          ++crashes;
          swarm.kill(SimCluster::node_of_peer(victim));
          swarm.cluster().runtime().run_for(50ms);
          swarm.cluster().restart_coordinator();
          finish_checked(swarm);
          if (testing::Test::HasFatalFailure()) return;
          ASSERT_EQ(swarm.cluster().parameters(), one_each(config));
          expect_each_step_once(swarm.cluster());
          EXPECT_EQ(events(swarm, "new_era"), 0U);
          if (testing::Test::HasFailure()) return;
        }
  EXPECT_GT(crashes, 0U);
}

// It says that it holds everything, but on another version than that step's: whoever believes it
// adds gradients of two versions.
TEST(RestartWithLosses, WhatIsHeldOnAnotherVersionDoesNotCount) {
  constexpr SimNodeId kLiar = 50;
  for (const bool lies : {false, true}) {
    const RunConfig config = run_of({1, 1}, 0);
    Swarm swarm(options_of(config));
    SimCluster& cluster = swarm.cluster();
    swarm.until_committed(1);
    const std::uint64_t open_step = 1;
    const SimNodeId gone = swarm.node(1, 0);
    Crash crash(swarm, {MessageKind::kSeal, 1, false});
    ASSERT_TRUE(crash.happens(0ms));
    swarm.kill(gone);
    cluster.restart_coordinator();
    wire::Hello hello;
    hello.set_protocol(kProtocolVersion);
    const Seat seat = cluster.peer(gone - 1).seat();
    *hello.mutable_previous() = to_wire(seat);
    for (const SeatRecord& record : *cluster.journal().seats())
      if (record.seat == seat) hello.set_address(record.address);
    hello.set_run_id("simulated");
    hello.mutable_holdings()->set_version(1);
    wire::PhaseHoldings& held = *hello.mutable_holdings()->add_phases();
    *held.mutable_phase() = to_wire(Phase{PhaseKind::kTrain, open_step});
    held.set_version(lies ? open_step - 1 : open_step);
    wire::BoundaryCodecs* codecs = held.add_codecs();
    codecs->set_forward("none");
    codecs->set_backward("none");
    for (std::uint32_t i = 0; i < config.microbatches_per_step(); ++i)
      held.add_acknowledged()->set_index(i);
    std::shared_ptr<RpcChannel> channel;
    cluster.network().node(kLiar).connect(*parse_address(kCoordinatorAddress), 1s, [&](auto made) {
      channel = RpcChannel::make(cluster.runtime().node(kLiar), *made);
      channel->start({.on_message = [](Frame) {}});
      channel->call(make_frame(MessageKind::kHello, hello), 1s,
                    [](const Result<Frame>& reply) { EXPECT_TRUE(reply.has_value()); });
    });
    ASSERT_TRUE(swarm.until_delivered(MessageKind::kOpenPhase, 1, kCoordinatorNode, kLiar));
    const std::uint64_t acknowledged =
        swarm.delivered(MessageKind::kReportAck, kCoordinatorNode, kLiar);
    EXPECT_EQ(acknowledged, lies ? 0U : 1U);
    channel->close();
  }
}

// Nobody of a stage comes back: the run goes back to its newest checkpoint.
TEST(RestartWithLosses, AStageThatIsGoneBeginsANewEra) {
  for (const std::uint32_t delay : {0U, 1U}) {
    const RunConfig config = run_of({1, 2}, delay);
    Swarm swarm(options_of(config));
    Crash crash(swarm, {MessageKind::kCommit, 8, true});
    ASSERT_TRUE(crash.happens(0ms));
    swarm.kill(SimCluster::node_of_peer(0));
    swarm.cluster().restart_coordinator();
    swarm.cluster().add_peer({});
    finish_checked(swarm);
    EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
    EXPECT_EQ(events(swarm, "new_era"), 1U);
  }
}

// Between an era's beginning and its first step, and fewer come back than the run once wanted.
TEST(RestartWithLosses, ACoordinatorThatDiesAsANewEraWaitsForPeers) {
  const RunConfig config = run_of({3, 1}, 0);
  Swarm swarm(options_of(config));
  swarm.until_committed(1);
  swarm.kill(swarm.node(1, 0));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }));
  swarm.cluster().kill_coordinator();
  swarm.cluster().runtime().run_for(100ms);
  swarm.cluster().restart_coordinator();
  finish_checked(swarm);
  EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
}

// Twice, and again while the second one still collects.
TEST(RestartAgain, ACoordinatorThatDiesWhileItCollects) {
  for (const std::uint32_t delay : {0U, 1U})
    for (const Duration collected : {0ms, 1ms, 150ms, 201ms, 203ms, 204ms, 205ms, 206ms}) {
      SCOPED_TRACE(to_seconds(collected));
      const RunConfig config = run_of({2, 2, 2}, delay);
      Swarm swarm(options_of(config));
      Crash crash(swarm, {MessageKind::kReduced, 8, true});
      ASSERT_TRUE(crash.happens(0ms));
      for (int again = 0; again < 3; ++again) {
        swarm.cluster().restart_coordinator();
        swarm.cluster().runtime().run_for(collected);
        swarm.cluster().kill_coordinator();
        swarm.cluster().runtime().run_for(20ms);
      }
      swarm.cluster().restart_coordinator();
      finish_checked(swarm);
      if (testing::Test::HasFatalFailure()) return;
      EXPECT_EQ(swarm.cluster().parameters(), one_each(config));
      expect_each_step_once(swarm.cluster());
      EXPECT_EQ(events(swarm, "new_era"), 0U);
      EXPECT_EQ(events(swarm, "peer_lost"), 0U);
    }
}

// Coordinators die at random, peers freeze, links break.
TEST(RestartAtRandom, NothingChanges) {
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 10 : 40); ++seed) {
    SCOPED_TRACE(seed);
    RunConfig config = run_of({2, 3, 2}, seed % 2);
    config.run.steps = 6;
    config.wiring.hop_timeout_seconds = 0.2;
    config.model.tied_embeddings = seed % 4 < 2;
    SimClusterOptions options = options_of(config);
    options.seed = seed;
    options.link.jitter = 2ms;
    Swarm swarm(std::move(options));
    Rng rng = Rng(seed).split("restarts");
    swarm.until_started();
    for (int i = 0; i < 8 && !swarm.cluster().outcome(); ++i) {
      swarm.cluster().runtime().run_for(std::chrono::milliseconds(rng.below(120)));
      if (swarm.cluster().coordinator().status_json().contains("\"state\":\"done\"")) break;
      const auto node = static_cast<SimNodeId>(1 + rng.below(swarm.cluster().peers()));
      const bool freezes = rng.below(2) == 0;
      if (freezes) swarm.freeze(node);
      swarm.cluster().kill_coordinator();
      swarm.cluster().runtime().run_for(std::chrono::milliseconds(rng.below(400)));
      const bool late = rng.below(2) == 0;
      if (freezes && !late) swarm.thaw(node);
      swarm.cluster().restart_coordinator();
      swarm.cluster().runtime().run_for(std::chrono::milliseconds(rng.below(400)));
      // For longer than it is waited for: it finds its seat given up.
      if (freezes && late && rng.below(2) == 0) swarm.cluster().runtime().run_for(6s);
      if (freezes && late) swarm.thaw(node);
    }
    finish_checked(swarm);
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(swarm.cluster().parameters(), one_each(config));
    if (events(swarm, "new_era") == 0) expect_each_step_once(swarm.cluster());
  }
}

// One is frozen, another leads at another address, the first one wakes: nobody heeds it.
TEST(RestartElsewhere, ACoordinatorThatWakesUnderALowerTermIsIgnored) {
  const MarkExpected over("settling.stepped_down");
  for (const std::uint32_t delay : {0U, 1U})
    for (const MessageKind kind :
         {MessageKind::kReport, MessageKind::kSeal, MessageKind::kReduced, MessageKind::kCommit})
      for (const Duration frozen : {100ms, 9000ms, 12000ms, 60000ms}) {
        SCOPED_TRACE(fmt::format("{}, frozen for {} s, delay {}", to_string(kind),
                                 to_seconds(frozen), delay));
        RunConfig config = run_of({2, 2, 2}, delay);
        config.run.steps = 8;
        config.net.standby = {kStandbyAddress};
        Swarm swarm(options_of(config));
        swarm.until_started();
        ASSERT_TRUE(swarm.until([&] { return swarm.delivered(kind) >= 7; }));
        swarm.freeze(kCoordinatorNode);
        swarm.cluster().runtime().run_for(5s);  // its lease runs out
        swarm.cluster().take_over();
        swarm.until([&] { return swarm.cluster().outcome().has_value(); }, frozen);
        swarm.thaw(kCoordinatorNode);
        finish_checked(swarm);
        if (testing::Test::HasFatalFailure()) return;
        ASSERT_EQ(swarm.cluster().parameters(), one_each(config));
        EXPECT_EQ(events(swarm, "new_era"), 0U);
        EXPECT_EQ(events(swarm, "peer_resumed"), 6U);
        if (testing::Test::HasFailure()) return;
      }
}

TEST(RestartElsewhere, PeersOfADeadCoordinatorFindTheStandby) {
  std::uint64_t crashes = 0;
  for (const std::uint32_t delay : {0U, 1U})
    for (std::uint64_t nth = 1; nth < 60; nth += 7) {
      RunConfig config = run_of({2, 2, 2}, delay);
      config.net.standby = {kStandbyAddress};
      Swarm swarm(options_of(config));
      Crash crash(swarm, {MessageKind::kReport, nth, nth % 2 == 0});
      if (!crash.happens(300ms)) continue;
      ++crashes;
      swarm.cluster().take_over();
      finish_checked(swarm);
      if (testing::Test::HasFatalFailure()) return;
      ASSERT_EQ(swarm.cluster().parameters(), one_each(config));
      EXPECT_EQ(events(swarm, "peer_resumed"), 6U);
    }
  EXPECT_GT(crashes, 0U);
}

// Its port was taken meanwhile, and peers may look for it there: it says so, and goes on elsewhere.
// Where nobody looks for it there is nothing to say.
TEST(RestartElsewhere, ATakenPortIsNamed) {
  for (const bool trains : {true, false}) {
    SimRuntime runtime(1);
    SimNetwork network(runtime, {});
    const auto journal = make_memory_journal();
    for (const auto& [key, value] :
         {std::pair("run_id", "run"), std::pair("address", "sim:9"), std::pair("started", "1"),
          std::pair("ended", trains ? "0" : "1")})
      ASSERT_TRUE(journal->put_meta(key, value).has_value());
    ASSERT_TRUE(network.node(5).listen({"sim", 9}, [](const auto&) {}).has_value());
    SimCheckpoints checkpoints(Rng(1));
    SimCheckpointSink checkpoint(runtime.node(0), checkpoints);
    ImmediateJournal kept(*journal);
    CoordinatorOptions options;
    options.config = run_of({1}, 0);
    options.config.net.listen = "sim:0";
    options.model = *resolve_model(options.config, 31);
    Coordinator coordinator(runtime.node(0), network.node(0), kept, checkpoint, options,
                            [](const RunOutcome&) {});
    const auto bound = coordinator.start();
    ASSERT_TRUE(bound.has_value()) << bound.error().what;
    std::vector<EventRecord> moved = *journal->events(1000);
    std::erase_if(moved, [](const EventRecord& event) { return event.kind != "moved"; });
    ASSERT_EQ(moved.size(), trains ? 1U : 0U);
    if (!trains) continue;
    EXPECT_NE(moved[0].detail.find("sim:9"), std::string::npos);
    EXPECT_NE(moved[0].detail.find(to_string(*bound)), std::string::npos);
  }
}

// A run without checkpoints and shadows can only go back to its beginning: it says so, once.
TEST(Unprotected, IsSaidWhenTheRunStarts) {
  struct Case {
    std::uint64_t every_steps;
    double every_minutes;
    ShadowsPerStage shadows;
    std::size_t said;
  };
  for (const Case& one : {Case{0, 0, {}, 1},
                          {0, 10, {}, 0},
                          {2, 0, {}, 0},
                          {0, 0, {.count = 1}, 0},
                          {0, 0, kShadowsAuto, 0}}) {
    RunConfig config = run_of({2, 2}, 0);
    config.checkpoint.every_steps = one.every_steps;
    config.checkpoint.every_minutes = one.every_minutes;
    config.balance.shadows = one.shadows;
    Swarm swarm(options_of(config));
    Crash crash(swarm, {MessageKind::kCommit, 4, true});
    ASSERT_TRUE(crash.happens(0ms));
    swarm.cluster().restart_coordinator();
    finish_checked(swarm);
    EXPECT_EQ(events(swarm, "unprotected"), one.said)
        << one.every_steps << " " << one.shadows.count;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Moments, Restart,
    testing::Combine(testing::Values(MessageKind::kOpenPhase, MessageKind::kLeases,
                                     MessageKind::kReport, MessageKind::kReportAck,
                                     MessageKind::kSeal, MessageKind::kReduced,
                                     MessageKind::kCommit, MessageKind::kStepped,
                                     MessageKind::kRetirePhase, MessageKind::kSaveStage,
                                     MessageKind::kCheckpointPiece),
                     testing::Values(0U, 1U)),
    [](const auto& info) {
      return fmt::format("{}Delay{}", to_string(std::get<0>(info.param)), std::get<1>(info.param));
    });

}  // namespace
}  // namespace swarmline
