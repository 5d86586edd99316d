// Fleets as they are rented, what is trained of a timeline, and other ways to train over the same
// fleet: hand-made traces whose answers are worked out beside them.
#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "sim/fleet/baselines.h"
#include "sim/fleet/rented_fleet.h"
#include "sim/fleet/replay.h"
#include "sim/fleet/work_timeline.h"

namespace swarmline {
namespace {

Fleet nodes(const std::string& lines, double seconds) {
  auto fleet = parse_fleet(
      "# swarmline fleet: 1\n# kind: nodes\n# seconds: " + std::to_string(seconds) + "\n" + lines);
  EXPECT_TRUE(fleet) << fleet.error().what;
  return std::move(*fleet);
}

// 100 tokens a second with a peer a stage, 150 with two: averaging costs. A step has 1000 tokens.
const TrainingRate kRate{.tokens_per_second = {0, 100, 150}, .step_tokens = 1000};
const CheckpointRule kNoCheckpoints{.period_seconds = 1e9};

WorkAccount account(const std::vector<WorkSpan>& spans, const CheckpointRule& rule) {
  return account_work(spans, kRate, rule);
}

// ---- What is trained ---------------------------------------

TEST(WorkAccountTest, TheRateIsALineBetweenWholePeers) {
  EXPECT_EQ(kRate.at(0), 0);
  EXPECT_EQ(kRate.at(0.5), 50);
  EXPECT_EQ(kRate.at(1.5), 125);
  EXPECT_EQ(kRate.at(2), 150);
  EXPECT_EQ(kRate.at(9), 150) << "nothing is said of more";
}

TEST(WorkAccountTest, ARollbackLosesWhatIsSinceTheNewestCheckpoint) {
  // 60 s of training and 5 s of writing at a time: the second checkpoint is complete at 130 s.
  const std::vector<WorkSpan> spans{{.seconds = 150, .speed = 1},
                                    {.seconds = 50, .speed = 1, .rolls_back = true}};
  const WorkAccount result = account(spans, {.period_seconds = 60, .write_seconds = 5});
  EXPECT_EQ(result.tokens, 100 * (120 + 50));
  EXPECT_EQ(result.lost_tokens, 100 * 20);
  EXPECT_EQ(result.saving_seconds, 10);
  EXPECT_EQ(result.rollbacks, 1U);
  EXPECT_EQ(result.seconds, 200);
}

TEST(WorkAccountTest, ACheckpointCountsWhenItIsComplete) {
  const std::vector<WorkSpan> spans{{.seconds = 64, .speed = 1},
                                    {.seconds = 10, .speed = 1, .rolls_back = true}};
  const WorkAccount result = account(spans, {.period_seconds = 60, .write_seconds = 5});
  EXPECT_EQ(result.lost_tokens, 6000);
  EXPECT_EQ(result.tokens, 1000);
}

TEST(WorkAccountTest, ACheckpointInTheBackgroundStopsNobody) {
  // Begun at 60, 120 and 180 s, complete 40 s later each.
  const std::vector<WorkSpan> spans{{.seconds = 150, .speed = 1},
                                    {.seconds = 50, .speed = 1, .rolls_back = true}};
  const CheckpointRule rule{.period_seconds = 60, .write_seconds = 40, .in_background = true};
  WorkAccount result = account(spans, rule);
  EXPECT_EQ(result.lost_tokens, 100 * (150 - 60)) << "the one begun at 120 s is not complete";
  EXPECT_EQ(result.tokens, 100 * (60 + 50));
  EXPECT_EQ(result.saving_seconds, 0);
  // A write that takes longer than the period: one at a time, at 60 and 160 s.
  result = account({{.seconds = 250, .speed = 1}, {.seconds = 1, .rolls_back = true}},
                   {.period_seconds = 60, .write_seconds = 100, .in_background = true});
  EXPECT_EQ(result.lost_tokens, 100 * (250 - 60));
}

TEST(WorkAccountTest, AStallReachesIntoTheNextSpansAndStepsAreComputedAgain) {
  const std::vector<WorkSpan> spans{
      {.seconds = 10, .speed = 1},
      {.seconds = 4, .speed = 1, .steps_again = 0.5, .stall_seconds = 6},
      {.seconds = 10, .speed = 2}};
  const WorkAccount result = account(spans, kNoCheckpoints);
  EXPECT_EQ(result.tokens, 1000 - 500 + 150 * 8);
  EXPECT_EQ(result.lost_tokens, 500);
  EXPECT_EQ(result.stalled_seconds, 6);
}

TEST(WorkAccountTest, DalysPeriod) {
  // delta = 18, M = 900: ratio 0.01, sqrt(32400) = 180; 180 * (1 + 0.1 / 3 + 0.01 / 9) - 18.
  EXPECT_NEAR(daly_period(18, 900), 180 * (1 + 0.1 / 3 + 0.01 / 9) - 18, 1e-9);
  EXPECT_EQ(daly_period(100, 40), 40) << "writing takes longer than machines last";
}

TEST(WorkAccountTest, DalysPeriodIsAboutTheBestOne) {
  // Failures at random, 1000 s apart on average; a checkpoint takes 10 s.
  Rng rng(7);
  std::vector<WorkSpan> spans(20000, {.speed = 1, .rolls_back = true});
  for (WorkSpan& span : spans) span.seconds = -1000 * std::log(1 - rng.uniform());
  const auto tokens = [&](double period) {
    return account(spans, {.period_seconds = period, .write_seconds = 10}).tokens;
  };
  const double daly = tokens(daly_period(10, 1000));
  EXPECT_GT(daly, tokens(30));
  EXPECT_GT(daly, tokens(600));
}

// ---- Rented fleets ---------------------------------------

TEST(RentedFleetTest, AnotherMachineIsTakenForALostOne) {
  const Fleet fleet = nodes("0 add a\n0 add b\n0 add c\n10 remove a\n20 remove b\n", 30);
  const Fleet rented = rented_fleet(fleet, 2);
  ASSERT_EQ(rented.events.size(), 3U);
  EXPECT_EQ(rented.events[0].added, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(rented.events[1].removed, (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(rented.events[1].added, (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(rented.events[2].count, 1U);
  EXPECT_EQ(machine_seconds(rented), 2 * 20 + 10);
  EXPECT_EQ(loss_instants(rented), 2U);
  EXPECT_EQ(machine_seconds(rented_fleet(fleet, 9)), machine_seconds(fleet));
}

TEST(RentedFleetTest, CountsGetNames) {
  auto counts = parse_fleet("# swarmline fleet: 1\n# kind: counts\n0 3\n10 1\n20 2\n");
  ASSERT_TRUE(counts);
  const Fleet named = named_fleet(*counts, 4);
  EXPECT_TRUE(named.names_nodes);
  ASSERT_EQ(named.events.size(), 3U);
  EXPECT_EQ(named.events[1].removed.size(), 2U);
  EXPECT_EQ(named.events[2].added, (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(named, named_fleet(*counts, 4));
  EXPECT_EQ(machine_seconds(named), machine_seconds(*counts));
}

TEST(RentedFleetTest, AMachineIsUsableAfterItsJoin) {
  const Fleet fleet = nodes("0 add a\n10 add b\n12 add c\n15 remove c\n40 remove b\n", 50);
  const Fleet usable = usable_fleet(fleet, 5);
  ASSERT_EQ(usable.events.size(), 3U);
  EXPECT_EQ(usable.events[1].seconds, 15) << "c is taken before it is ready";
  EXPECT_EQ(usable.events[1].count, 2U);
  EXPECT_EQ(usable.events[2].seconds, 40);
}

TEST(RentedFleetTest, SafeMachinesStay) {
  const Fleet fleet = with_safe_machines(nodes("0 add a\n10 remove a\n", 50), 2);
  EXPECT_EQ(first_safe_node(fleet, 2), 1U);
  EXPECT_EQ(fleet.events.back().count, 2U);
  EXPECT_EQ(machine_seconds(fleet), 10 + 2 * 50);
}

// ---- The baselines ---------------------------------------

// One of two stages' machines is lost for ever at half time; nobody else is there.
const char* const kHalf = "0 add a\n0 add b\n500 remove b\n";

TEST(BaselinesTest, ALossForEverAtHalfTimeEndsWhatHasNoSpare) {
  const Fleet fleet = nodes(kHalf, 1000);
  // 100 tokens a second for 500 s, less what is since the checkpoint at 400 s.
  const CheckpointRule rule{.period_seconds = 200};
  WorkAccount result = account(restart_timeline(fleet, {.stages = 2}), rule);
  EXPECT_EQ(result.tokens, 40000);
  EXPECT_EQ(result.lost_tokens, 10000);
  EXPECT_EQ(result.stalled_seconds, 500);
  // One machine holds the whole model: half of two replicas goes on, for 5 s and half a step.
  result = account(replica_timeline(fleet, 1, false), rule);
  EXPECT_EQ(result.tokens, 150 * 500 - 500 + 100 * 495);
  EXPECT_EQ(result.rollbacks, 0U);
  // A model that takes both: as checkpoint-restart.
  result = account(replica_timeline(fleet, 2, false), rule);
  EXPECT_EQ(result.tokens, 40000);
  EXPECT_EQ(result.rollbacks, 1U);
}

TEST(BaselinesTest, RestartsCostTheirTimeAndTheWorkSinceTheCheckpoint) {
  const Fleet fleet = nodes("0 add a\n0 add b\n0 add c\n500 remove a\n", 1000);
  const auto spans = restart_timeline(fleet, {.stages = 2, .restart_seconds = 60});
  const WorkAccount result = account(spans, {.period_seconds = 200, .write_seconds = 10});
  // Checkpoints at 200..210 and 410..420; 80 s are lost at 500, 60 s are waited, then 200, 10 s of
  // writing, 200 and 10, and 20 more.
  EXPECT_NEAR(result.lost_tokens, 8000, 1e-6);
  EXPECT_NEAR(result.tokens, 100 * (400 + 420), 1e-6);
}

TEST(BaselinesTest, ANoticeSavesTheWork) {
  const Fleet fleet = nodes("0 add a\n0 add b\n500 remove a\n", 1000);
  const RestartJob job{.stages = 1, .restart_seconds = 60, .saves_at_notice = true};
  WorkAccount result =
      account(restart_timeline(fleet, job), {.period_seconds = 1e9, .write_seconds = 10});
  EXPECT_EQ(result.tokens, 150 * 500 + 100 * (500 - 60 - 10));
  EXPECT_EQ(result.lost_tokens, 0);
  result = account(replica_timeline(fleet, 1, true), kNoCheckpoints);
  EXPECT_EQ(result.tokens, 150 * 500 + 100 * 500);
}

TEST(BaselinesTest, ASpareThatIsLostEndsNoJob) {
  const Fleet fleet = nodes("0 add a\n0 add b\n0 add c\n500 remove c\n", 1000);
  EXPECT_EQ(account(restart_timeline(fleet, {.stages = 2}), kNoCheckpoints).tokens, 100000);
}

TEST(BaselinesTest, AJobGrowsByARestartOrAtTheNextLoss) {
  const Fleet fleet = nodes("0 add a\n100 add b\n200 add c\n500 remove c\n", 1000);
  const RestartJob grows{.stages = 1, .restart_seconds = 50};
  const RestartJob waits{.stages = 1, .restart_seconds = 50, .grows_at_once = false};
  // Grown at 100 (then 3 at 200, which is as fast as 2 here); each is preceded by a checkpoint.
  WorkAccount result = account(restart_timeline(fleet, grows), kNoCheckpoints);
  EXPECT_EQ(result.lost_tokens, 150 * 250) << "since the checkpoint at 200 s";
  EXPECT_EQ(result.tokens, 100 * 100 + 150 * 50 + 150 * 450);
  // b and c wait, and their loss ends nothing.
  result = account(restart_timeline(fleet, waits), kNoCheckpoints);
  EXPECT_EQ(result.tokens, 100000);
}

TEST(BaselinesTest, WhoComesDuringARestartIsTakenIn) {
  const Fleet fleet = nodes("0 add a\n0 add b\n100 remove b\n120 add c\n", 300);
  const auto spans = restart_timeline(fleet, {.stages = 1, .restart_seconds = 60});
  EXPECT_EQ(account(spans, {.period_seconds = 100}).tokens, 150 * 100 + 150 * 140);
}

TEST(BaselinesTest, RedundancyOutlivesOneOfTwoNeighbours) {
  const double share = 1 / (1 + kRedundancyOverhead);
  EXPECT_NEAR(kRedundancyOverhead, 0.159, 0.001);
  // Nobody waits: the pipeline goes on half as slow again. 41 stages: one lost node endangers less
  // than a twentieth of them.
  std::string all;
  for (int i = 0; i < 41; ++i) all += "0 add n" + std::to_string(i) + "\n";
  const Fleet one = nodes(all + "500 remove n7\n", 1000);
  WorkAccount result = account(redundancy_timeline(one, 41, 9), kNoCheckpoints);
  EXPECT_NEAR(result.tokens, 100 * share * (500 + 500 / 1.5), 1e-6);
  EXPECT_EQ(result.rollbacks, 0U);
  const Fleet two = nodes(all + "500 remove n7\n500 remove n8\n", 1000);
  result = account(redundancy_timeline(two, 41, 9), kNoCheckpoints);
  EXPECT_EQ(result.tokens, 0) << "neighbours: nobody has their stages";
  EXPECT_EQ(result.rollbacks, 1U);
  const Fleet apart = nodes(all + "0 add s\n0 add t\n500 remove n7\n500 remove n9\n", 1000);
  result = account(redundancy_timeline(apart, 41, 9), kNoCheckpoints);
  EXPECT_NEAR(result.tokens, 100 * share * (1000 - 20), 1e-6) << "those who wait take over";
}

TEST(BaselinesTest, RedundancyEndsAPipelineForTheOthers) {
  // Two pipelines of two stages, a-b and c-d; who is lost is replaced by the same stage's node of
  // the other pipeline, or by its predecessor, which knows the stage.
  const Fleet fleet = nodes("0 add a\n0 add b\n0 add c\n0 add d\n500 remove a\n", 1000);
  const WorkAccount result = account(redundancy_timeline(fleet, 2, 9), kNoCheckpoints);
  const double two = kRate.at(2 / (1 + kRedundancyOverhead));
  const double one = kRate.at(1 / (1 + kRedundancyOverhead));
  EXPECT_NEAR(result.tokens, 500 * two + 480 * one, 1e-6);
  EXPECT_EQ(result.rollbacks, 0U);
}

TEST(BaselinesTest, OnDemandLosesNothing) {
  const WorkAccount result =
      account(steady_timeline(1000, 2), {.period_seconds = 490, .write_seconds = 10});
  EXPECT_EQ(result.tokens, 150 * 980);
  EXPECT_EQ(result.lost_tokens, 0);
}

// ---- The replay as a timeline ---------------------------------------

ReplayOptions free_replay(std::uint32_t stages) {
  ReplayOptions options{.stages = stages};
  options.state_bytes_per_parameter = 0;
  options.plan.shadows_per_stage = 0;
  return options;
}

TEST(ReplayTimelineTest, ALossForEverAtHalfTime) {
  // Two peers serve one stage. At half time one is lost, and with it a quarter of the open step.
  const Fleet fleet = nodes(kHalf, 1000);
  auto spans = replay_timeline(fleet, free_replay(1));
  WorkAccount result = account(spans, kNoCheckpoints);
  EXPECT_EQ(result.tokens, 150 * 500 - 250 + 100 * 500);
  EXPECT_EQ(result.rollbacks, 0U);
  ReplayOptions noticed = free_replay(1);
  noticed.loss_stall_seconds = 3;
  EXPECT_EQ(account(replay_timeline(fleet, noticed), kNoCheckpoints).tokens,
            150 * 500 - 250 + 100 * 497);
  // Each served a stage of its own: the run stands, and what was not saved is lost.
  spans = replay_timeline(fleet, free_replay(2));
  result = account(spans, {.period_seconds = 200});
  EXPECT_EQ(result.tokens, 40000);
  EXPECT_EQ(result.rollbacks, 1U);
}

TEST(ReplayTimelineTest, AShadowSavesTheWork) {
  // Stage 1 has one peer of three; a spare of stage 0 follows it from the beginning.
  const Fleet fleet = nodes("0 add a\n0 add b\n0 add c\n500 remove b\n", 1000);
  ReplayOptions options{.stages = 2};
  options.plan.shadows_per_stage = 1;
  EXPECT_EQ(account(replay_timeline(fleet, options), {.period_seconds = 200}).rollbacks, 0U);
  options.plan.shadows_per_stage = 0;
  EXPECT_EQ(account(replay_timeline(fleet, options), {.period_seconds = 200}).rollbacks, 1U);
}

TEST(ReplayTimelineTest, WhoFetchesAndWhoFollowsIsCounted) {
  const Fleet fleet = nodes("0 add a\n0 add b\n0 add c\n500 add d\n", 1000);
  ReplayOptions options{.stages = 2};
  options.plan.shadows_per_stage = 0;
  WorkAccount result = account(replay_timeline(fleet, options), kNoCheckpoints);
  EXPECT_EQ(result.fetches, 1U) << "those of the beginning have their state";
  EXPECT_EQ(result.followed_tokens, 0);
  options.plan.shadows_per_stage = 1;
  const Fleet still = nodes("0 add a\n0 add b\n0 add c\n", 1000);
  result = account(replay_timeline(still, options), kNoCheckpoints);
  EXPECT_EQ(result.fetches, 0U);
  const auto shadows = static_cast<double>(replay_fleet(still, options).shadow_downloads);
  EXPECT_GT(shadows, 0) << "all of them from the beginning";
  EXPECT_NEAR(result.followed_tokens, shadows * result.tokens, 1e-6);
}

TEST(ReplayTimelineTest, ANoticeInTimeForADownloadSavesAStage) {
  const Fleet fleet = nodes("0 add a\n0 add b\n0 add c\n500 remove b\n", 1000);
  ReplayOptions options{.stages = 2};
  options.plan.shadows_per_stage = 0;
  options.notice_seconds = 30;  // a shadow's download takes 193 s, a handover 32 s
  const CheckpointRule rule{.period_seconds = 200};
  WorkAccount result = account(replay_timeline(fleet, options), rule);
  EXPECT_EQ(result.rollbacks, 1U);
  options.notice_seconds = 200;
  result = account(replay_timeline(fleet, options), rule);
  EXPECT_EQ(result.rollbacks, 0U);
  EXPECT_EQ(result.lost_tokens, 0);
}

TEST(ReplayTimelineTest, ItsSpansAreTheReplaysTime) {
  const Fleet fleet = nodes("0 add a\n0 add b\n0 add c\n500 remove b\n700 add d\n", 1000);
  const ReplayOptions options{.stages = 1};
  double seconds = 0, work = 0;
  for (const WorkSpan& span : replay_timeline(fleet, options)) {
    seconds += span.seconds;
    work += span.seconds * span.speed;
  }
  EXPECT_NEAR(seconds, 1000, 1e-9);
  EXPECT_NEAR(work, replay_fleet(fleet, options).overall.achieved, 1e-6);
}

}  // namespace
}  // namespace swarmline
