#include "pipeline/reference/reference_trainer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "engine/optimizer/flat_optimizer.h"
#include "tests/reference/pattern_source.h"

namespace swarmline {
namespace {

using testing::kVocab;
using testing::PatternSource;

RunConfig small_config() {
  RunConfig config;
  config.run.steps = 5;
  config.model = {.layers = 4, .d_model = 16, .heads = 2, .vocab = kVocab, .dtype = DType::kF64};
  config.batch = {.batch = 8, .microbatch = 2, .sequence = 6};
  config.optimizer.lr = 1e-2;
  config.optimizer.clip = 0.05;
  config.optimizer.warmup_steps = 2;
  return config;
}

ModelSpec model_of(const RunConfig& config) {
  auto model = resolve_model(config, kVocab);
  EXPECT_TRUE(model) << model.error().what;
  return *model;
}

struct Outcome {
  std::vector<ReferenceStep> steps;
  ReferenceResult result;
};

Outcome train(const RunConfig& config, std::uint64_t permute_sums = 0,
              ReferenceMutation::Kind mutation = ReferenceMutation::Kind::kNone,
              std::uint64_t eval_sequences = 0) {
  PatternSource source(config.batch);
  Outcome out;
  auto result =
      run_reference({.config = config,
                     .model = model_of(config),
                     .device = "cpu",
                     .threads = 1,
                     .permute_sums = permute_sums,
                     .eval_sequences = eval_sequences,
                     .mutation = {mutation}},
                    source, [&](const ReferenceStep& step) { out.steps.push_back(step); });
  EXPECT_TRUE(result) << result.error().what;
  if (result) out.result = std::move(*result);
  return out;
}

std::vector<double> values(const Outcome& outcome) {
  std::vector<double> out;
  for (const ParameterSlot& slot : outcome.result.layout.slots) {
    if (outcome.result.layout.dtype == DType::kF64) {
      const auto part = outcome.result.parameters.as<double>().subspan(slot.offset, slot.elements);
      out.insert(out.end(), part.begin(), part.end());
    } else {
      const auto part = outcome.result.parameters.as<float>().subspan(slot.offset, slot.elements);
      out.insert(out.end(), part.begin(), part.end());
    }
  }
  return out;
}

double distance(const Outcome& a, const Outcome& b) {
  const std::vector<double> x = values(a), y = values(b);
  EXPECT_EQ(x.size(), y.size());
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

// The same training written the long way: the whole batch at once, every version kept.
Buffer train_by_hand(const RunConfig& config) {
  RunConfig whole = config;
  whole.batch.microbatch = whole.batch.batch;
  PatternSource source(whole.batch);
  const ModelSpec spec = model_of(config);
  auto model = make_stage_model(
      spec, {.stage = StageId{0}, .stages = 1, .first_layer = 0, .last_layer = spec.shape.layers},
      {});
  EXPECT_TRUE(model);
  const ParameterLayout layout = (*model)->layout();
  FlatOptimizer optimizer(config.optimizer, layout);
  std::vector<Buffer> versions;
  versions.push_back(Buffer::copy_of((*model)->parameters()));
  const std::size_t count = std::size_t{whole.batch.batch} * whole.batch.sequence;
  std::vector<std::int32_t> tokens(count), targets(count);
  for (std::uint64_t step = 0; step < config.run.steps; ++step) {
    const std::uint64_t computed_on = step > 0 && config.pipeline.delay == 1 ? step - 1 : step;
    copy_bytes(versions[computed_on].bytes(), (*model)->parameters());
    (*model)->parameters_changed();
    const AttemptId id{{{PhaseKind::kTrain, step}, 0}, Attempt{0}};
    EXPECT_TRUE(source.read(id.microbatch, tokens, targets));
    EXPECT_TRUE((*model)->forward({.id = id,
                                   .train = true,
                                   .rows = whole.batch.batch,
                                   .tokens = std::as_bytes(std::span(tokens)),
                                   .hidden = {},
                                   .targets = std::as_bytes(std::span(targets)),
                                   .loss_scale = 1.0 / static_cast<double>(count)}));
    Buffer gradient = Buffer::zeroed(layout.bytes());
    EXPECT_TRUE(
        (*model)->backward({.id = id, .output_gradient = {}, .accumulator = gradient.bytes()}));
    const double norm = std::sqrt(sum_of_squares(gradient.bytes(), layout.dtype));
    Buffer next = Buffer::copy_of(versions[step].bytes());
    EXPECT_TRUE(optimizer.step(step_scalars(config.optimizer, step, config.run.steps, step, norm),
                               gradient.bytes(), next.bytes()));
    versions.push_back(std::move(next));
  }
  return std::move(versions.back());
}

class AgainstHand : public ::testing::TestWithParam<std::tuple<std::uint32_t, OptimizerKind>> {};

TEST_P(AgainstHand, MicrobatchesAndVersionsMakeTheSameUpdates) {
  RunConfig config = small_config();
  config.pipeline.delay = std::get<0>(GetParam());
  config.optimizer.kind = std::get<1>(GetParam());
  const Outcome reference = train(config);
  Outcome by_hand;
  by_hand.result.layout = reference.result.layout;
  by_hand.result.parameters = train_by_hand(config);
  EXPECT_LT(distance(reference, by_hand), 1e-11);
}

INSTANTIATE_TEST_SUITE_P(DelaysAndOptimizers, AgainstHand,
                         ::testing::Combine(::testing::Values(0U, 1U),
                                            ::testing::Values(OptimizerKind::kAdamW,
                                                              OptimizerKind::kLamb)));

TEST(Reference, DelayChangesTheResult) {
  RunConfig config = small_config();
  const Outcome without = train(config);
  config.pipeline.delay = 1;
  EXPECT_GT(distance(without, train(config)), 1e-5);
}

TEST(Reference, IsRepeatable) {
  const Outcome a = train(small_config()), b = train(small_config());
  EXPECT_EQ(distance(a, b), 0);
  ASSERT_EQ(a.steps.size(), 5U);
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].step, i);
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].gradient_norm, b.steps[i].gradient_norm);
  }
}

TEST(Reference, LearnsThePattern) {
  RunConfig config = small_config();
  config.run.steps = 150;
  config.optimizer.clip = 1;
  const Outcome trained = train(config, 0, ReferenceMutation::Kind::kNone, 4);
  EXPECT_NEAR(trained.steps.front().loss, std::log(static_cast<double>(kVocab)), 0.3);
  EXPECT_LT(trained.steps.back().loss, 1.3);
  EXPECT_LT(trained.result.eval_loss, 1.4);
  EXPECT_GT(trained.result.eval_loss, 0.3);  // each token has two successors
}

TEST(Reference, PermutedSumsDifferByRoundingOnly) {
  const Outcome straight = train(small_config());
  const Outcome permuted = train(small_config(), 1);
  EXPECT_GT(distance(straight, permuted), 0);
  EXPECT_LT(distance(straight, permuted), 1e-9);
  EXPECT_GT(distance(permuted, train(small_config(), 2)), 0);
}

class Mutant : public ::testing::TestWithParam<ReferenceMutation::Kind> {};

TEST_P(Mutant, IsFarBeyondSummationNoise) {
  const Outcome healthy = train(small_config());
  const double noise = distance(healthy, train(small_config(), 3));
  EXPECT_GT(distance(healthy, train(small_config(), 0, GetParam())), 100 * noise);
}

INSTANTIATE_TEST_SUITE_P(All, Mutant,
                         ::testing::Values(ReferenceMutation::Kind::kDropMicrobatch,
                                           ReferenceMutation::Kind::kDoubleMicrobatch,
                                           ReferenceMutation::Kind::kMissAtOneStage,
                                           ReferenceMutation::Kind::kLearningRate,
                                           ReferenceMutation::Kind::kClipBeforeReduce));

// Steps after the first overflow: a learning rate no parameter survives.
RunConfig exploding_config() {
  RunConfig config = small_config();
  config.model.dtype = DType::kF32;
  config.optimizer.lr = 1e30;
  config.optimizer.warmup_steps = 0;
  return config;
}

TEST(Reference, NonFiniteGradientStopsWithASentence) {
  const RunConfig config = exploding_config();
  PatternSource source(config.batch);
  auto result = run_reference({.config = config, .model = model_of(config)}, source, {});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().what.find("step 2: the gradient is not finite"), std::string::npos)
      << result.error().what;
}

TEST(Reference, NonFiniteStepsAreSkippedWhenAsked) {
  RunConfig config = exploding_config();
  config.run.on_nonfinite = NonFinite::kSkip;
  config.optimizer.schedule = LearningSchedule::kConstant;
  const Outcome skipped = train(config);
  EXPECT_EQ(skipped.steps.size(), 5U);
  config.run.steps = 1;
  EXPECT_EQ(distance(skipped, train(config)), 0);
}

}  // namespace
}  // namespace swarmline
