// 8-bit optimizer state trains a small model as well as fp32 state does: the losses of three seeds
// differ by no more than the seeds do.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/optimizer/state_layout.h"
#include "pipeline/reference/reference_trainer.h"
#include "tests/reference/pattern_source.h"

namespace swarmline {
namespace {

using testing::kVocab;
using testing::PatternSource;

constexpr std::uint64_t kEvalSequences = 32;

RunConfig config_of(OptimizerKind kind, MomentsKind state, std::uint64_t seed) {
  RunConfig config;
  config.run.seed = seed;
  config.run.steps = 60;
  config.model = {.layers = 2, .d_model = 64, .heads = 2, .vocab = kVocab};
  config.batch = {.batch = 16, .microbatch = 8, .sequence = 16};
  config.optimizer.kind = kind;
  config.optimizer.lr = kind == OptimizerKind::kLamb ? 2e-2 : 3e-3;
  config.optimizer.warmup_steps = 5;
  config.optimizer.state = state;
  return config;
}

double trained_loss(const RunConfig& config) {
  const auto model = resolve_model(config, kVocab);
  EXPECT_TRUE(model) << model.error().what;
  PatternSource source(config.batch);
  const auto result = run_reference(
      {.config = config, .model = *model, .eval_sequences = kEvalSequences}, source, {});
  EXPECT_TRUE(result) << result.error().what;
  return result->eval_loss;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

class State8Training : public ::testing::TestWithParam<OptimizerKind> {};

TEST_P(State8Training, EndsWithinTheNoiseOfFp32) {
  std::vector<double> coded, plain;
  for (const std::uint64_t seed : {1, 2, 3}) {
    coded.push_back(trained_loss(config_of(GetParam(), MomentsKind::k8Bit, seed)));
    plain.push_back(trained_loss(config_of(GetParam(), MomentsKind::kF32, seed)));
    EXPECT_NE(coded.back(), plain.back()) << "nothing was coded";
    RecordProperty("seed" + std::to_string(seed),
                   std::to_string(coded.back()) + " " + std::to_string(plain.back()));
  }
  const auto [least, most] = std::ranges::minmax(plain);
  EXPECT_LT(most, 1.5) << "not trained: the noise says nothing";
  EXPECT_LE(std::abs(mean(coded) - mean(plain)), most - least);
  EXPECT_LT(mean(coded), mean(plain) * 1.02);
}

INSTANTIATE_TEST_SUITE_P(Kinds, State8Training,
                         ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kLamb),
                         [](const auto& info) {
                           return info.param == OptimizerKind::kAdamW ? "AdamW" : "Lamb";
                         });

}  // namespace
}  // namespace swarmline
