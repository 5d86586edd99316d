// Stages that lose everybody at once while a shadow lives: the run goes on without losing a commit,
// whatever the moment, and ends with the parameters of the run without losses.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/cluster/fake_stage_model.h"
#include "sim/faults/random_faults.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig run_of(std::vector<std::uint32_t> peers, std::uint32_t delay, std::uint32_t shadows) {
  RunConfig config = small_run(std::move(peers), delay);
  config.run.steps = 12;
  config.balance.shadows = {.count = shadows};
  return config;
}

// Who was told to follow which stage.
std::shared_ptr<std::map<SimNodeId, std::uint32_t>> watch_follows(Swarm& swarm) {
  auto follows = std::make_shared<std::map<SimNodeId, std::uint32_t>>();
  swarm.watch([follows](SimNodeId, SimNodeId to, const Frame& frame) {
    if (kind_of(frame) == MessageKind::kFollow)
      (*follows)[to] = parse<wire::Follow>(frame)->stage();
  });
  return follows;
}

bool until_shadows(Swarm& swarm, std::size_t count) {
  return swarm.until([&] { return events(swarm, "shadow_ready") >= count; });
}

bool until_taken_over(Swarm& swarm, Duration limit = 1s) {
  return swarm.until([&] { return events(swarm, "taken_over") > 0; }, limit);
}

// Ends well, with nobody's commit lost: it never went back.
void expect_exact(Swarm& swarm, const RunConfig& config) {
  const RunOutcome outcome = swarm.end(300s);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << "\n" << history(swarm);
  EXPECT_EQ(events(swarm, "new_era"), 0U);
  expect_equal(swarm.cluster().parameters(), one_each(config));
  if (testing::Test::HasFailure()) FAIL() << history(swarm);
}

class ShadowSwarm : public testing::TestWithParam<std::uint32_t> {};

TEST_P(ShadowSwarm, EveryStageHasItsShadowAndNothingChanges) {
  const RunConfig config = run_of({2, 2, 2}, GetParam(), 1);
  Swarm swarm(swarm_of(config, make_fake_model));
  EXPECT_TRUE(until_shadows(swarm, 3)) << history(swarm);
  EXPECT_LT(commits_of(swarm.cluster()), 6U);
  expect_exact(swarm, config);
  EXPECT_EQ(events(swarm, "shadow_added"), 3U);
  EXPECT_EQ(events(swarm, "shadow_demoted"), 0U) << history(swarm);
}

TEST_P(ShadowSwarm, AStageThatLosesAllIsTakenOver) {
  const RunConfig config = run_of({2, 2, 2}, GetParam(), 1);
  for (std::uint16_t stage = 0; stage < 3; ++stage) {
    Swarm swarm(swarm_of(config, make_fake_model));
    ASSERT_TRUE(until_shadows(swarm, 3)) << history(swarm);
    swarm.kill_stage(stage);
    ASSERT_TRUE(until_taken_over(swarm)) << history(swarm);
    EXPECT_TRUE(swarm.until([&] { return swarm.serving(stage).size() == 1; }, 20ms));
    expect_exact(swarm, config);
  }
}

// Steps of seconds, so that going back costs more than a while.
SimClusterOptions slow_swarm_of(const RunConfig& config) {
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.peers.assign(3, {.forward = 1s, .backward = 1s, .jitter = 0});
  return options;
}

RunConfig slow_run(std::uint32_t delay) {
  RunConfig config = run_of({2, 1}, delay, 1);
  config.net.heartbeat_seconds = 0.1;
  config.net.peer_silence_seconds = 0.5;
  config.wiring.hop_timeout_seconds = 600;
  return config;
}

// A shadow's host is told to take the stage over, and hears nothing of it: for a while nobody hears
// what the coordinator says. Nobody else has the state: it is waited for as long as that is worth
// it, is told again when it comes, and takes the stage over.
TEST_P(ShadowSwarm, WhoIsSentHearsNothingOfItForAWhile) {
  const RunConfig config = slow_run(GetParam());
  const MarkExpected waits("takeovers.waits"), again("arrivals.sent_again");
  Swarm swarm(slow_swarm_of(config));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "shadow_ready", "of stage 1") == 1; }, 300s))
      << history(swarm);
  swarm.cluster().network().silence(kCoordinatorNode, true, false);
  swarm.kill_stage(1);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "take_over") == 1; }, 20s)) << history(swarm);
  swarm.cluster().runtime().run_for(8s);
  EXPECT_EQ(events(swarm, "waiting", "was sent to stage 1"), 1U) << history(swarm);
  swarm.cluster().network().unsilence(kCoordinatorNode);
  ASSERT_TRUE(until_taken_over(swarm, 60s)) << history(swarm);
  const RunOutcome outcome = swarm.end(3600s);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.sentence;
  EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
  expect_equal(swarm.cluster().parameters(), one_each(config));
}

// ... and it dies on its way: nobody waits for it.
TEST_P(ShadowSwarm, WhoIsSentDiesOnItsWay) {
  Swarm swarm(slow_swarm_of(slow_run(GetParam())));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "shadow_ready", "of stage 1") == 1; }, 300s))
      << history(swarm);
  const Seat host = swarm.cluster().coordinator().shadow_hosts(StageId{1}).at(0);
  swarm.kill_stage(1);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "take_over") == 1; }, 20s)) << history(swarm);
  for (std::size_t i = 0; i < swarm.cluster().peers(); ++i)
    if (swarm.cluster().seat_of(i).peer == host.peer) swarm.kill(SimCluster::node_of_peer(i));
  EXPECT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }, 7s)) << history(swarm);
}

// Its state comes a piece at a time, with a rest as long as the piece took.
TEST_P(ShadowSwarm, AShadowLeavesHalfOfTheLinkToTheStageThatItsHostServes) {
  RunConfig config = run_of({2, 2}, GetParam(), 1);
  config.model.d_model = 160;
  config.run.steps = 40;
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.link.bytes_per_second = 10e6;
  Swarm swarm(std::move(options));
  struct Fetch {
    bool under_way = false;
    Instant asked{}, came{};
    Duration took{};
    std::uint32_t pieces = 0;
  };
  std::map<SimNodeId, Fetch> fetches;
  const auto now = [&] { return swarm.cluster().runtime().node(kCoordinatorNode).now(); };
  swarm.rule([&](SimNodeId from, SimNodeId, const Frame& frame) {
    if (kind_of(frame) == MessageKind::kPieceRequest &&
        parse<wire::PieceRequest>(frame)->blob().has_state()) {
      Fetch& fetch = fetches[from];
      EXPECT_FALSE(std::exchange(fetch.under_way, true));
      if (fetch.pieces > 0) EXPECT_GE(now() - fetch.came, fetch.took);
      fetch.asked = now();
    }
    return FrameFate{};
  });
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (kind_of(frame) != MessageKind::kPiece || !parse<wire::Piece>(frame)->blob().has_state())
      return;
    Fetch& fetch = fetches.at(to);
    fetch.under_way = false;
    fetch.came = now();
    fetch.took = fetch.came - fetch.asked;
    ++fetch.pieces;
  });
  ASSERT_TRUE(until_shadows(swarm, 2)) << history(swarm);
  ASSERT_EQ(fetches.size(), 2U);
  for (const auto& [node, fetch] : fetches) EXPECT_GE(fetch.pieces, 3U);
}

// After so many frames of any kind.
TEST_P(ShadowSwarm, AtAnyMoment) {
  for (const bool tied : {false, true}) {
    RunConfig config = run_of({2, 2, 2}, GetParam(), 2);
    config.model.tied_embeddings = tied;
    config.run.steps = 9;
    for (std::uint16_t stage = 0; stage < 3; ++stage) {
      for (int frames = 0; frames < 700; frames += 71 + 7 * stage) {
        Swarm swarm(swarm_of(config, make_fake_model));
        ASSERT_TRUE(until_shadows(swarm, 6)) << history(swarm);
        int seen = 0;
        swarm.watch([&](SimNodeId, SimNodeId, const Frame&) { ++seen; });
        ASSERT_TRUE(swarm.until([&] { return seen >= frames; }));
        SCOPED_TRACE(fmt::format("stage {} after {} frames, tied {}", stage, frames, tied));
        swarm.kill_stage(stage);
        expect_exact(swarm, config);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// The members of stage 1 have the step's sum, others have not ended theirs: what the shadow holds
// is committed, and no contribution of the stage is computed again.
TEST_P(ShadowSwarm, LostBetweenReduceAndCommit) {
  const RunConfig config = run_of({2, 2, 4}, GetParam(), 1);
  Swarm swarm(swarm_of(config, make_fake_model));
  const auto followed = watch_follows(swarm);
  ASSERT_TRUE(until_shadows(swarm, 3));
  const std::uint64_t version = commits_of(swarm.cluster());
  // Somebody of another stage, who follows none, does not say that it has its sum.
  SimNodeId silent = 0;
  std::optional<std::uint64_t> step;
  std::set<SimNodeId> have;
  swarm.rule([&](SimNodeId from, SimNodeId, const Frame& frame) {
    FrameFate fate;
    if (kind_of(frame) != MessageKind::kReduced) return fate;
    const auto reduced = parse<wire::Reduced>(frame);
    if (reduced->phase().step() <= version || (step && reduced->phase().step() != *step))
      return fate;
    step = reduced->phase().step();
    if (reduced->group() == 1) have.insert(from);
    if (reduced->group() == 2 && reduced->seat().stage() == 2 && !followed->contains(from)) {
      silent = silent == 0 ? from : silent;
      if (silent == from) fate.kind = FrameFate::Kind::kHold;
    }
    return fate;
  });
  ASSERT_TRUE(swarm.until([&] { return have.size() >= 3 && silent != 0; }, 10s));
  swarm.cluster().runtime().run_for(5ms);
  ASSERT_EQ(commits_of(swarm.cluster()), *step);
  std::uint64_t again = 0;
  swarm.watch([&](SimNodeId, SimNodeId, const Frame& frame) {
    if (kind_of(frame) == MessageKind::kSeal && parse<wire::Seal>(frame)->phase().step() == *step)
      for (const wire::ReduceGroup& group : parse<wire::Seal>(frame)->groups())
        again += group.group() == 1;
  });
  swarm.kill_stage(1);
  ASSERT_TRUE(until_taken_over(swarm)) << history(swarm);
  swarm.kill(silent);  // its mate has the sum
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) > *step; }, 5s))
      << history(swarm);
  EXPECT_EQ(again, 0U);
  expect_exact(swarm, config);
}

// A shadow that gets nothing more holds up no step for longer than its deadline.
TEST_P(ShadowSwarm, OneThatDoesNotAnswerIsDemoted) {
  RunConfig config = run_of({2, 2, 2}, GetParam(), 1);
  config.model.tied_embeddings = false;
  Swarm swarm(swarm_of(config, make_fake_model));
  const auto follows = watch_follows(swarm);
  ASSERT_TRUE(until_shadows(swarm, 3));
  // Of a stage that its host exchanges nothing else with.
  std::size_t held = 0;
  swarm.rule([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    FrameFate fate;
    if (kind_of(frame) != MessageKind::kPiece || !follows->contains(to)) return fate;
    const int apart = static_cast<int>(swarm.stage_of(to)) - static_cast<int>(follows->at(to));
    if (std::abs(apart) < 2 || swarm.stage_of(from) != follows->at(to)) return fate;
    fate.kind = FrameFate::Kind::kHold;
    ++held;
    return fate;
  });
  const Duration began = swarm.cluster().elapsed();
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "shadow_demoted") > 0; }, 5s))
      << history(swarm);
  EXPECT_GT(held, 0U);
  EXPECT_GE(swarm.cluster().elapsed() - began, 2s);
  expect_exact(swarm, config);
}

// Its host is lost with the stage: another shadow's takes over.
TEST_P(ShadowSwarm, ALostHostIsReplacedByAnother) {
  RunConfig config = run_of({3, 2, 3}, GetParam(), 2);
  config.run.steps = 16;
  Swarm swarm(swarm_of(config, make_fake_model));
  ASSERT_TRUE(until_shadows(swarm, 6)) << history(swarm);
  std::optional<SimNodeId> host;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (kind_of(frame) == MessageKind::kFenced && parse<wire::Fenced>(frame)->takes_stage())
      host = to;
  });
  swarm.kill_stage(1);
  ASSERT_TRUE(swarm.until([&] { return host.has_value(); }, 1s)) << history(swarm);
  swarm.kill(*host);
  ASSERT_TRUE(until_taken_over(swarm, 20s)) << history(swarm);
  expect_exact(swarm, config);
}

// All hosts are the last of their own stages but for shadows of those.
TEST_P(ShadowSwarm, AHostThatIsTheLastOfItsStageLeavesItToAShadow) {
  RunConfig config = run_of({2, 2, 2}, GetParam(), 2);
  config.run.steps = 20;
  Swarm swarm(swarm_of(config, make_fake_model));
  ASSERT_TRUE(until_shadows(swarm, 6)) << history(swarm);
  swarm.kill(swarm.serving(2)[0]);
  swarm.cluster().runtime().run_for(20ms);
  swarm.kill_stage(1);
  ASSERT_TRUE(until_taken_over(swarm)) << history(swarm);
  expect_exact(swarm, config);
}

// Nobody holds the stage's state any more: a new era.
TEST_P(ShadowSwarm, WithoutAShadowTheRunGoesBack) {
  const RunConfig config = run_of({2, 2, 2}, GetParam(), 0);
  Swarm swarm(swarm_of(config, make_fake_model));
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) == 3; }));
  swarm.kill_stage(1);
  EXPECT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }, 1s)) << history(swarm);
}

// The only shadow's host is lost with the stage; the new era has shadows again.
TEST_P(ShadowSwarm, ALostHostOfTheOnlyShadowIsANewEra) {
  RunConfig config = run_of({3, 2, 3}, GetParam(), 1);
  config.run.steps = 16;
  Swarm swarm(swarm_of(config, make_fake_model));
  const auto follows = watch_follows(swarm);
  ASSERT_TRUE(until_shadows(swarm, 3)) << history(swarm);
  for (const auto& [host, stage] : *follows)
    if (stage == 1) swarm.kill(host);
  swarm.kill_stage(1);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "new_era") == 1; }, 1s)) << history(swarm);
  ASSERT_TRUE(until_shadows(swarm, 5)) << history(swarm);
  const RunOutcome outcome = swarm.end(300s);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.sentence << history(swarm);
  expect_equal(swarm.cluster().parameters(), one_each(config));
}

// Moved to the stage that it follows, a peer fetches nothing: over slow links it serves at once,
// where another downloads for long.
TEST_P(ShadowSwarm, AMoveToAFollowedStageFetchesNothing) {
  Duration moving[2];
  for (const bool followed : {false, true}) {
    RunConfig config = run_of({3, 3, 3}, GetParam(), followed ? 2 : 0);
    config.balance.moves = true;
    config.run.steps = 60;
    config.net.heartbeat_seconds = 0.02;
    SimClusterOptions options = swarm_of(config, make_fake_model);
    options.link.bytes_per_second = 1e6;
    Swarm swarm(std::move(options));
    ASSERT_TRUE(swarm.until([&] {
      return followed ? events(swarm, "shadow_ready") == 6 : commits_of(swarm.cluster()) == 3;
    })) << history(swarm);
    std::uint64_t wanted = 0;
    swarm.watch([&](SimNodeId, SimNodeId, const Frame& frame) {
      if (kind_of(frame) == MessageKind::kWantState)
        wanted += parse<wire::WantState>(frame)->seat().incarnation() > 1;
    });
    const std::vector<SimNodeId> mates = swarm.serving(1);
    swarm.kill(mates[0]);
    swarm.kill(mates[1]);
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_moves") == 1; }, 20s))
        << history(swarm);
    const Duration left = swarm.cluster().elapsed();
    ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_seated") == 1; }, 20s))
        << history(swarm);
    moving[followed] = swarm.cluster().elapsed() - left;
    EXPECT_EQ(events(swarm, "peer_moves", "to stage 1"), 1U) << history(swarm);
    EXPECT_EQ(wanted, followed ? 0U : 1U) << history(swarm);
    expect_exact(swarm, config);
  }
  fmt::print("{:.0f} ms with a download, {:.0f} ms without\n", 1e3 * to_seconds(moving[0]),
             1e3 * to_seconds(moving[1]));
  EXPECT_LT(5 * moving[1], moving[0]);
}

// Of two members that hold different parameters the shadow says who is right: the other is fenced.
TEST_P(ShadowSwarm, ATieIsSettledByTheShadow) {
  const RunConfig config = run_of({2, 2}, GetParam(), 1);
  Swarm swarm(swarm_of(config, make_fake_model));
  ASSERT_TRUE(until_shadows(swarm, 2));
  const SimNodeId victim = swarm.serving(1)[0];
  const Seat seat = swarm.cluster().peer(victim - 1).seat();
  std::optional<std::uint64_t> tipped;
  swarm.watch([&](SimNodeId, SimNodeId to, const Frame& frame) {
    if (tipped || to != victim || kind_of(frame) != MessageKind::kCommit) return;
    tipped = parse<wire::Commit>(frame)->step() + 1;
  });
  ASSERT_TRUE(swarm.until([&] { return tipped.has_value(); }));
  const BytesView state = swarm.cluster().peer(victim - 1).committed_parameters();
  const_cast<std::byte&>(state[0]) ^= std::byte{1};  // as a bit that tips in memory
  const std::string peer = "(peer " + std::to_string(seat.peer.value) + ", ";
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_lost", peer) == 1; }, 5s))
      << history(swarm);
  EXPECT_EQ(events(swarm, "peer_lost"), 1U);
  const RunOutcome outcome = swarm.end(300s);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.sentence;
}

// A coordinator that begins again knows no shadows: they are chosen anew, and take over as before.
TEST_P(ShadowSwarm, ACoordinatorThatBeganAgainHasThemAgain) {
  RunConfig config = run_of({2, 2, 2}, GetParam(), 1);
  config.run.steps = 24;
  config.net.collect_seconds = 2;
  Swarm swarm(swarm_of(config, make_fake_model));
  ASSERT_TRUE(until_shadows(swarm, 3)) << history(swarm);
  swarm.cluster().kill_coordinator();
  swarm.cluster().runtime().run_for(50ms);
  swarm.cluster().restart_coordinator();
  ASSERT_TRUE(until_shadows(swarm, 6)) << history(swarm);
  // With a delay a commit may have come while they got ready; the next one waits for them.
  const std::uint64_t commits = commits_of(swarm.cluster());
  ASSERT_TRUE(swarm.until([&] { return commits_of(swarm.cluster()) > commits; }));
  swarm.kill_stage(1);
  ASSERT_TRUE(until_taken_over(swarm)) << history(swarm);
  expect_exact(swarm, config);
}

// Whole stages are killed, peers freeze and links break, machines join: at random moments.
TEST_P(ShadowSwarm, StagesAreKilledAtRandom) {
  constexpr std::uint64_t kSeeds = 24;
  std::size_t taken = 0, eras = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RunConfig config = run_of({3, 3, 3}, GetParam(), seed % 2 == 0 ? 1 : 2);
    config.run.steps = 48;  // long enough for the faults
    config.balance.moves = seed % 3 == 0;
    config.model.tied_embeddings = seed % 4 < 2;
    config.net.heartbeat_seconds = 0.05;
    config.net.peer_silence_seconds = 0.4;
    config.wiring.hop_timeout_seconds = 0.5;
    SimClusterOptions options = swarm_of(config, make_fake_model);
    options.seed = seed;
    options.link.jitter = 1ms;
    Swarm swarm(std::move(options));
    ASSERT_TRUE(until_shadows(swarm, 3)) << history(swarm);
    FaultInjector injector(swarm.cluster());
    RandomFaults faults(swarm.cluster(), injector,
                        {.kinds = {FaultKind::kKill, FaultKind::kJoin, FaultKind::kJoin,
                                   FaultKind::kReset, FaultKind::kFreeze, FaultKind::kJoin},
                         .count = 24,
                         .gap = 150ms,
                         .time_max = 1s,
                         .grace = 500ms,
                         .shadowed_stages = 3},
                        Rng(seed));
    faults.on_training();
    faults.start();
    const RunOutcome outcome = swarm.end(300s);
    ASSERT_EQ(outcome.exit_code, 0) << "seed " << seed << ": " << outcome.sentence << "\n"
                                    << history(swarm);
    taken += events(swarm, "taken_over");
    eras += events(swarm, "new_era");
    // A stage may have been killed while the run was saying goodbye.
    const Tensors got = swarm.cluster().parameters();
    Tensors wanted = one_each(config);
    std::erase_if(wanted, [&](const auto& tensor) { return !got.contains(tensor.first); });
    expect_equal(got, wanted);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << "\n" << history(swarm);
  }
  fmt::print("{} take-overs, {} new eras in {} runs\n", taken, eras, kSeeds);
  EXPECT_GT(taken, kSeeds);
}

INSTANTIATE_TEST_SUITE_P(Delay, ShadowSwarm, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
