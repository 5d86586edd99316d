// 8-bit optimizer state trains a small model as well as fp32 state does: the losses of three seeds
// differ by no more than the seeds do.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/rng.h"
#include "engine/optimizer/state_layout.h"
#include "pipeline/reference/reference_trainer.h"

namespace swarmline {
namespace {

constexpr std::uint32_t kVocab = 19;
constexpr std::uint64_t kEvalSequences = 32;

// The next token is one of two, so that the best loss is log 2.
class PatternSource final : public MicrobatchSource {
 public:
  explicit PatternSource(const BatchSection& batch) : batch_(batch) {}
  Result<void> read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) override {
    const bool eval = id.phase.kind == PhaseKind::kEval;
    for (std::uint32_t row = 0; row < batch_.microbatch; ++row) {
      Rng rng = Rng(eval ? 77 : 5)
                    .split(eval ? 0 : id.phase.step)
                    .split(std::uint64_t{id.index} * batch_.microbatch + row);
      std::int32_t token = static_cast<std::int32_t>(rng.below(kVocab));
      for (std::uint32_t i = 0; i < batch_.sequence; ++i) {
        tokens[row * batch_.sequence + i] = token;
        token = (token * 3 + static_cast<std::int32_t>(rng.below(2))) % kVocab;
        targets[row * batch_.sequence + i] = token;
      }
    }
    return {};
  }

 private:
  BatchSection batch_;
};

RunConfig config_of(OptimizerKind kind, const char* state, std::uint64_t seed) {
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
    coded.push_back(trained_loss(config_of(GetParam(), "8bit", seed)));
    plain.push_back(trained_loss(config_of(GetParam(), "fp32", seed)));
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
