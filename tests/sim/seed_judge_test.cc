// That the judge of seeds sees what it is there to see, and draws what it says.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/model_wrapper.h"
#include "sim/seeds/swarm_seed.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// Adds the weight gradients of every try but the first one twice, or fails to compute.
class WrongModel final : public ModelWrapper {
 public:
  WrongModel(std::unique_ptr<StageModel> model, bool fails)
      : ModelWrapper(std::move(model)), fails_(fails) {}
  Result<ForwardOutput> forward(const ForwardInput& input) override {
    if (fails_ && input.id.attempt.value != 0) return fail(ErrorCode::kDevice, "broken");
    return ModelWrapper::forward(input);
  }
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    BackwardInput more = input;
    if (input.id.attempt.value != 0) more.scale *= 2;
    return ModelWrapper::backward(more);
  }

 private:
  bool fails_;
};

SeedScenario killing(bool fails) {
  SeedScenario scenario = scenario_of(1);
  scenario.swarm.config.pipeline.peers.assign(scenario.swarm.config.pipeline.stages, 3);
  scenario.swarm.config.run.steps = 20;
  scenario.faults.kinds = {FaultKind::kKill};
  scenario.faults.count = 8;
  scenario.faults.gap = 20ms;
  scenario.swarm.make_model =
      [fails](const ModelSpec& spec, const StageSpec& stage,
              const StageModelOptions& options) -> Result<std::unique_ptr<StageModel>> {
    return std::make_unique<WrongModel>(std::move(*make_fake_model(spec, stage, options)), fails);
  };
  return scenario;
}

TEST(SeedJudge, SeesAContributionThatCountsTwice) {
  const SeedOutcome outcome = run_scenario(killing(false));
  EXPECT_NE(outcome.violation.find("other bits"), std::string::npos) << outcome.violation;
}

// A journal whose writes return before they are on the disk.
TEST(SeedJudge, SeesACommitThatThePowerTakes) {
  SeedScenario scenario = scenario_of(1, SeedExtras());
  scenario.swarm.config.run.steps = 20;
  scenario.swarm.config.pipeline.peers.assign(scenario.swarm.config.pipeline.stages, 2);
  scenario.faults = {.kinds = {FaultKind::kRestart}, .count = 40, .gap = 20ms, .time_max = 50ms};
  scenario.faults_at_once = false;
  EXPECT_EQ(run_scenario(scenario).violation, "");
  scenario.swarm.journal_late = 100ms;
  const std::string violation = run_scenario(scenario).violation;
  EXPECT_NE(violation.find("lost with what was not synced"), std::string::npos) << violation;
}

TEST(SeedJudge, SeesARunThatFails) {
  const SeedOutcome outcome = run_scenario(killing(true));
  EXPECT_NE(outcome.violation.find("the run failed"), std::string::npos) << outcome.violation;
}

TEST(SeedJudge, SeedsDifferAndEachIsTheSameTwice) {
  std::set<std::string> summaries;
  std::set<FaultKind> kinds;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const SeedScenario scenario = scenario_of(seed);
    EXPECT_EQ(scenario.summary, scenario_of(seed).summary);
    EXPECT_LE(scenario.faults.kinds.size(), kFaultKinds.size());
    summaries.insert(scenario.summary);
    kinds.insert(scenario.faults.kinds.begin(), scenario.faults.kinds.end());
  }
  EXPECT_EQ(summaries.size(), 100U);
  const auto usual = std::ranges::count(kFaultKinds, false, &FaultName::on_request);
  EXPECT_EQ(kinds.size(), usual + usual_extras().kinds.size());
}

TEST(SeedJudge, AQuarterOfTheSeedsTurnsKnobs) {
  int turned = 0;
  std::set<std::string_view> names;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const SeedScenario scenario =
        scenario_of(seed, SeedExtras());  // thin heartbeats are knobs, too
    const HostileKnobs& hostile = scenario.knobs;
    turned += hostile.words.empty() ? 0 : 1;
    bool shortened = false, gives_up_later = true;
    for (const KnobInfo& knob : knob_table()) {
      if (knob.name == "part_bytes_min") continue;  // drawn with the folder that peers share
      const auto is_below = [&](auto member) { return hostile.knobs.*member < Knobs().*member; };
      const auto is_above = [&](auto member) { return hostile.knobs.*member > Knobs().*member; };
      const bool below = knob.count ? is_below(knob.count) : is_below(knob.duration);
      const bool above = knob.count ? is_above(knob.count) : is_above(knob.duration);
      shortened |= below;
      if (knob.gives_up) {
        gives_up_later &= above;
        continue;
      }
      if (below || above) names.insert(knob.name);
      const bool said = hostile.words.find(std::string(knob.name) + " ") != std::string::npos;
      EXPECT_EQ(below || above, said) << knob.name << " in " << scenario.summary;
    }
    EXPECT_EQ(shortened, shortened && gives_up_later) << scenario.summary;
  }
  EXPECT_GT(turned, 60);
  EXPECT_LT(turned, 140);
  EXPECT_GT(names.size(), knob_table().size() * 3 / 4);
}

TEST(SeedJudge, HeartbeatsThinOutInHalfOfTheSeeds) {
  int thin = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const auto thins = [&](const SeedExtras& extras) {
      return scenario_of(seed, extras).summary.find("heartbeats_per_second") != std::string::npos;
    };
    EXPECT_FALSE(thins(SeedExtras()));
    thin += thins(usual_extras()) ? 1 : 0;
  }
  EXPECT_GT(thin, 30);
  EXPECT_LT(thin, 70);
}

TEST(SeedJudge, ASeedRunsWithTheKnobsThatItTurns) {
  SeedScenario scenario = scenario_of(1);
  scenario.knobs.knobs.report_delay = 7ms;
  scenario.faults.count = 0;
  bool seen = false;
  EXPECT_EQ(run_scenario(scenario, [&](Duration, SimNodeId, SimNodeId,
                                       const Frame&) { seen |= knobs().report_delay == 7ms; })
                .violation,
            "");
  EXPECT_TRUE(seen);
  EXPECT_NE(knobs().report_delay, 7ms) << "only while it runs";
}

}  // namespace
}  // namespace swarmline
