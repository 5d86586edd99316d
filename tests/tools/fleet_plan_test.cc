// `swarmline fleet plan --trace` without the program: what is found on traces whose answer is
// known, mistakes, the report.
#include <gtest/gtest.h>

#include "engine/config/load.h"
#include "engine/store/json_value.h"
#include "tests/golden/golden.h"
#include "tools/predict/fleet_layout.h"
#include "tools/predict/fleet_plan_report.h"

namespace swarmline {
namespace {

constexpr const char* kRun = R"(config_version = 1
[run]
name = "plan-test"
[model]
layers = 8
d_model = 256
vocab = 512
[data]
files = ["x"]
[batch]
batch = 64
microbatch = 1
sequence = 128
[pipeline]
stages = 2
)";

Fleet trace_of(const std::string& lines, double seconds) {
  auto fleet = parse_fleet("# swarmline fleet: 1\n# name: made-up\n# kind: nodes\n# seconds: " +
                           std::to_string(seconds) + "\n" + lines);
  EXPECT_TRUE(fleet) << fleet.error().what;
  return std::move(*fleet);
}

// Machines come at the beginning; every `period` seconds the oldest is taken and another one comes.
Fleet churning(std::uint32_t machines, double period, double seconds) {
  std::string lines;
  std::uint32_t next = 0;
  for (; next < machines; ++next) lines += "0 add n" + std::to_string(next) + "\n";
  for (double at = period; at < seconds; at += period, ++next) {
    const std::string when = std::to_string(at);
    lines += when + " remove n" + std::to_string(next - machines) + "\n";
    lines += when + " add n" + std::to_string(next) + "\n";
  }
  return trace_of(lines, seconds);
}

FleetPlanQuestion question_of(Fleet trace) {
  FleetPlanQuestion question;
  question.fleet.config = *run_config_from_text(kRun, "t");
  question.fleet.model = *resolve_model(question.fleet.config, 512);
  question.fleet.classes = {{.name = "box",
                             .count = 4,
                             .flops_per_second = 1e10,
                             .dollars_per_hour = 0.5,
                             .on_demand_dollars_per_hour = 2,
                             .bits_per_second = 1e8}};
  question.trace = std::move(trace);
  question.prices_path = "p.toml";
  question.trace_path = "t.fleet";
  return question;
}

Result<FleetPlan> plan_of(const FleetPlanQuestion& question) {
  return plan_fleet(question, [](std::size_t, std::size_t, const std::string&) {});
}

const FleetOutcome& outcome_of(const FleetPlan& plan, FleetWay way) {
  for (const FleetOutcome& outcome : plan.ways)
    if (outcome.way == way) return outcome;
  ADD_FAILURE() << "no " << name_of(way);
  return plan.ways.front();
}

TEST(PlanFleet, WhereNobodyIsTakenSpotCostsItsPrice) {
  FleetPlanQuestion question = question_of(trace_of("0 add a\n0 add b\n0 add c\n0 add d\n", 36000));
  question.stages = {2};
  question.machines = {4};
  const auto plan = plan_of(question);
  ASSERT_TRUE(plan) << plan.error().what;
  EXPECT_EQ(plan->best.setting.machines, 4U);
  EXPECT_EQ(plan->best.setting.on_demand, 0U);
  EXPECT_EQ(plan->best.work.lost_tokens, 0);
  const FleetOutcome& on_demand = outcome_of(*plan, FleetWay::kOnDemand);
  EXPECT_NEAR(on_demand.dollars_per_billion_tokens / plan->best.dollars_per_billion_tokens, 4,
              1e-9);
  EXPECT_NEAR(on_demand.tokens_per_second, plan->best.tokens_per_second, 1e-6);
  for (const FleetWay way : {FleetWay::kRestart60, FleetWay::kRestart180, FleetWay::kRestart300})
    EXPECT_NEAR(outcome_of(*plan, way).tokens_per_second, plan->best.tokens_per_second, 1e-6);
  const FleetOutcome& redundant = outcome_of(*plan, FleetWay::kRedundancy);
  EXPECT_LT(redundant.tokens_per_second, plan->best.tokens_per_second);
}

TEST(PlanFleet, WhereManyAreTakenRestartsCostMore) {
  FleetPlanQuestion question = question_of(churning(6, 400, 36000));
  question.stages = {2};
  const auto plan = plan_of(question);
  ASSERT_TRUE(plan) << plan.error().what;
  double before = plan->best.dollars_per_billion_tokens;
  for (const FleetWay way : {FleetWay::kRestart60, FleetWay::kRestart180, FleetWay::kRestart300}) {
    const double now = outcome_of(*plan, way).dollars_per_billion_tokens;
    EXPECT_GT(now, before);
    before = now;
  }
  for (const FleetOutcome& outcome : plan->by_machines) {
    EXPECT_GE(outcome.dollars_per_billion_tokens,
              outcome_of(*plan, outcome.way).dollars_per_billion_tokens);
    EXPECT_LE(outcome.goodput, 1 + 1e-9);
  }
}

TEST(PlanFleet, WhoWantsMoreThroughputPaysMore) {
  FleetPlanQuestion question = question_of(churning(8, 900, 36000));
  const auto cheapest = plan_of(question);
  ASSERT_TRUE(cheapest) << cheapest.error().what;
  question.least_tokens_per_second = 1.5 * cheapest->best.tokens_per_second;
  const auto faster = plan_of(question);
  ASSERT_TRUE(faster) << faster.error().what;
  EXPECT_GE(faster->best.tokens_per_second, question.least_tokens_per_second);
  EXPECT_GT(faster->best.dollars_per_billion_tokens, cheapest->best.dollars_per_billion_tokens);
  question.least_tokens_per_second = 1e12;
  const auto none = plan_of(question);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().what.find("no setting reaches 1000000000000 tokens/s on this trace"),
            std::string::npos);
}

TEST(PlanFleet, EgressIsPartOfTheCostAndOfTheChoice) {
  FleetPlanQuestion question = question_of(trace_of("0 add a\n0 add b\n0 add c\n0 add d\n", 36000));
  question.stages = {2};
  question.machines = {4};
  question.codecs = {"none", "h8"};
  const auto cost = [&](const char* codec, double price) {
    question.codecs = {codec};
    question.fleet.classes[0].egress_dollars_per_gb = price;
    const auto plan = plan_of(question);
    EXPECT_TRUE(plan) << plan.error().what;
    return plan->best;
  };
  // Nobody comes or goes: what is sent is the steps' boundaries and averaging.
  const FleetOutcome free = cost("none", 0), paid = cost("none", 0.5);
  const auto layout = fleet_layout(question.fleet, 2);
  ASSERT_TRUE(layout);
  const auto traffic = predict_traffic(question_of_layout(question.fleet, *layout, 2, "none"));
  ASSERT_TRUE(traffic);
  const double steps =
      free.work.tokens / static_cast<double>(question.fleet.config.tokens_per_step());
  EXPECT_NEAR(paid.egress_dollars, steps * traffic->bytes() / 1e9 * 0.5,
              1e-6 * paid.egress_dollars);
  EXPECT_NEAR(paid.dollars_per_billion_tokens - free.dollars_per_billion_tokens,
              paid.egress_dollars / paid.work.tokens * 1e9, 1e-6);
  EXPECT_GT(paid.egress_share(), 0);
  EXPECT_EQ(free.egress_dollars, 0);
  EXPECT_LT(cost("h8", 0.5).egress_dollars, paid.egress_dollars);

  // Where many come and go, the states that they fetch cost as well.
  question = question_of(churning(6, 400, 36000));
  question.stages = {2};
  question.machines = {6};
  const FleetOutcome churn = cost("none", 0.5);
  EXPECT_GT(churn.work.fetches, 80U) << "one every 400 s";
  const double worked =
      churn.work.worked_tokens() / static_cast<double>(question.fleet.config.tokens_per_step());
  EXPECT_GT(churn.egress_dollars,
            0.5 / 1e9 *
                (worked * traffic->boundary_bytes +
                 static_cast<double>(churn.work.fetches) * layout->state_bytes));
}

TEST(PlanFleet, AStageHasToFitTheMachine) {
  FleetPlanQuestion question = question_of(churning(8, 900, 36000));
  const auto whole = fleet_layout(question.fleet, 1);
  ASSERT_TRUE(whole);
  // The state is parameters and two moments; a newcomer fetches it over its link.
  EXPECT_EQ(whole->state_bytes, 12 * whole->parameters);
  EXPECT_NEAR(whole->state_seconds, 8 * whole->state_bytes / 1e8, 1e-9);
  question.fleet.classes[0].memory_bytes = 1;
  const auto none = plan_of(question);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().what.find("does not fit the memory of box"), std::string::npos);
}

TEST(PlanFleet, MistakesGetOneSentence) {
  const auto refused = [](const FleetPlanQuestion& question) {
    const auto plan = plan_of(question);
    if (plan) return std::string("taken");
    EXPECT_EQ(plan.error().code, ErrorCode::kUserMistake);
    return plan.error().what;
  };
  const FleetPlanQuestion good = question_of(churning(4, 900, 36000));
  FleetPlanQuestion bad = good;
  bad.fleet.classes[0].dollars_per_hour = 0;
  EXPECT_EQ(
      refused(bad),
      "p.toml: devices.box: found no price; write price = DOLLARS, what one costs an hour when it "
      "may be taken away");
  bad = good;
  bad.fleet.classes[0].on_demand_dollars_per_hour = 0;
  EXPECT_EQ(
      refused(bad),
      "p.toml: devices.box: found no on_demand_price; write on_demand_price = DOLLARS, what one "
      "costs an hour when it is never taken away");
  bad = good;
  bad.trace = trace_of("0 add a\n", 30);
  EXPECT_EQ(refused(bad), "t.fleet: the trace covers 30 s; expected at least 600 s, better a day");
  bad = good;
  bad.stages = {9};
  EXPECT_NE(refused(bad).find("9 stages for 8 layers"), std::string::npos);
  bad = good;
  bad.stages = {8};
  EXPECT_EQ(
      refused(bad),
      "t.fleet: the trace has at most 4 machines at a time, too few for 8 stages; expected another "
      "trace or fewer stages");
  bad = good;
  bad.stages = {4};
  bad.machines = {3};
  EXPECT_NE(refused(bad).find("--machines: expected at least as many as there are stages"),
            std::string::npos);
}

TEST(PlanFleet, ReportsAreTheGoldenOnes) {
  FleetPlanQuestion question = question_of(churning(6, 400, 36000));
  question.stages = {2};
  question.machines = {6};
  const auto plan = plan_of(question);
  ASSERT_TRUE(plan) << plan.error().what;
  const auto prediction = predict_fleet(plan->at_best);
  ASSERT_TRUE(prediction) << prediction.error().what;
  const auto changes = fleet_changes(plan->at_best, *prediction);
  const std::string json = fleet_plan_json(question, *plan, *prediction, changes);
  const auto parsed = parse_json(json);
  ASSERT_TRUE(parsed) << parsed.error().what;
  EXPECT_EQ((*parsed)["best"]["tokens_per_second"].number, plan->best.tokens_per_second);
  EXPECT_EQ((*parsed)["ways"].items.size(), 7U);
  expect_golden("fleet/plan.txt", fleet_plan_text(question, *plan, *prediction, changes));
  expect_golden("fleet/plan.json", json);
  const LinePlot plot = fleet_plan_plot(question, *plan);
  EXPECT_FALSE(plot.lines.empty());
  EXPECT_NE(to_svg(plot).find("checkpoint-restart at 180 s"), std::string::npos);
}

}  // namespace
}  // namespace swarmline
