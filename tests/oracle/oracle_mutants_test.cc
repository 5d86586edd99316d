// The bound is tight: whoever trains something else misses it by kMutantRatio or more, in the
// parameters alone, whatever the losses say. Each mutant once as a broken reference, once as a
// broken swarm.
#include <cmath>
#include <tuple>

#include <gtest/gtest.h>

#include "engine/optimizer/flat_optimizer.h"
#include "tests/oracle/model_wrapper.h"
#include "tests/oracle/oracle_case.h"

namespace swarmline::oracle {
namespace {

using Kind = ReferenceMutation::Kind;

constexpr Kind kMutants[] = {Kind::kDropMicrobatch, Kind::kDoubleMicrobatch, Kind::kMissAtOneStage,
                             Kind::kLearningRate, Kind::kClipBeforeReduce};

std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::kDropMicrobatch:
      return "Drop";
    case Kind::kDoubleMicrobatch:
      return "Double";
    case Kind::kMissAtOneStage:
      return "MissAtOneStage";
    case Kind::kLearningRate:
      return "LearningRate";
    case Kind::kClipBeforeReduce:
      return "ClipBeforeReduce";
    case Kind::kNone:
      break;
  }
  return "None";
}

void expect_missed(const std::string& name, const References& references, Trace mutant) {
  mutant.losses = references.reference.losses;
  mutant.eval_loss = references.reference.eval_loss;
  const Comparison worst = compare(references.reference, mutant, references.bound);
  EXPECT_GE(worst.ratio, kMutantRatio) << worst.sentence();
  EXPECT_TRUE(std::isfinite(worst.ratio)) << worst.where << ": not another training, but none";
  report(name, references.reference.dtype, worst);
}

std::vector<Factors> one_stage_one_peer() {
  std::vector<Factors> cells;
  for (const Factors& factors : full_product()) {
    if (factors.stages == 1 && factors.peers == 1) cells.push_back(factors);
  }
  return cells;
}

class MutantReference : public ::testing::TestWithParam<std::tuple<Factors, Kind>> {};

TEST_P(MutantReference, MissesTheBound) {
  const auto& [factors, kind] = GetParam();
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const RunConfig config = config_of(factors, dtype);
    const References& references = references_of(config);
    // Else clipping in another place would be no mutation.
    ASSERT_GT(references.gradient_norm_least, config.optimizer.clip);
    expect_missed(factors.reference_name() + name_of(kind), references,
                  reference_trace(config, kind));
  }
}

INSTANTIATE_TEST_SUITE_P(All, MutantReference,
                         ::testing::Combine(::testing::ValuesIn(one_stage_one_peer()),
                                            ::testing::ValuesIn(kMutants)),
                         [](const auto& info) {
                           return std::get<0>(info.param).reference_name() +
                                  name_of(std::get<1>(info.param));
                         });

// A peer that miscounts microbatch 1 of step 1, or clips each microbatch by itself.
class BrokenModel final : public ModelWrapper {
 public:
  BrokenModel(std::unique_ptr<StageModel> inner, const StageSpec& stage, Kind kind,
              OptimizerSection optimizer)
      : ModelWrapper(std::move(inner)), stage_(stage.stage), kind_(kind), optimizer_(optimizer) {}

  Result<BackwardOutput> backward(const BackwardInput& input) override {
    BackwardInput changed = input;
    const MicrobatchId& id = input.id.microbatch;
    if (id.phase.step == 1 && id.index == 1) {
      if (kind_ == Kind::kDoubleMicrobatch) changed.scale *= 2;
      if (kind_ == Kind::kDropMicrobatch) changed.weight_gradients = false;
      if (kind_ == Kind::kMissAtOneStage && stage_.value == 0) changed.weight_gradients = false;
    }
    if (kind_ != Kind::kClipBeforeReduce) return ModelWrapper::backward(changed);
    return clipped(changed);
  }

 private:
  Result<BackwardOutput> clipped(BackwardInput input) {
    Buffer own = Buffer::zeroed(input.accumulator.size());
    const MutableBytes sum = input.accumulator;
    input.accumulator = own.bytes();
    auto output = ModelWrapper::backward(input);
    const double norm = std::sqrt(sum_of_squares(own.bytes(), DType::kF64));
    const double scale = clip_scale(optimizer_, norm);
    auto* to = reinterpret_cast<double*>(sum.data());
    const auto from = own.as<double>();
    for (std::size_t i = 0; i < from.size(); ++i) to[i] += scale * from[i];
    return output;
  }

  StageId stage_;
  Kind kind_;
  OptimizerSection optimizer_;
};

class MutantSwarm : public ::testing::TestWithParam<Kind> {};

TEST_P(MutantSwarm, MissesTheBound) {
  // Clipping alone needs the norm over the whole model: one stage.
  const Kind kind = GetParam();
  const Factors factors{.stages = kind == Kind::kClipBeforeReduce ? 1U : 2U, .peers = 2};
  const RunConfig config = config_of(factors, DType::kF64);
  SimClusterOptions options = swarm_options(config, 1);
  options.make_model = wrapped<BrokenModel>(kind, config.optimizer);
  if (kind == Kind::kLearningRate) options.config.optimizer.lr *= 1.01;
  if (kind == Kind::kClipBeforeReduce) options.config.optimizer.clip = 0;
  expect_missed("swarm " + name_of(kind), references_of(config), run_swarm(std::move(options)));
}

TEST(MutantSwarm, WithoutAMutationTheWrappedSwarmAgrees) {
  const RunConfig config = config_of({.stages = 2, .peers = 2}, DType::kF64);
  SimClusterOptions options = swarm_options(config, 1);
  options.make_model = wrapped<BrokenModel>(Kind::kNone, config.optimizer);
  const References& references = references_of(config);
  const Comparison worst =
      compare(references.reference, run_swarm(std::move(options)), references.bound);
  EXPECT_LE(worst.ratio, 1) << worst.sentence();
}

INSTANTIATE_TEST_SUITE_P(All, MutantSwarm, ::testing::ValuesIn(kMutants),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace swarmline::oracle
