// Swarms with 8-bit optimizer state agree with the reference, and its mutants do not. A sum that
// rounds otherwise by one bit can move a moment to the neighbouring code, which is worth thousands
// of such bits; so rarely that the permuted references may or may not have met one. Hence a
// hundredth of a tensor's elements may be further away, by no more than a step's length; the others
// have the bound that fp32 state has, times kCodeFactor for what LAMB's norm spreads of one element
// over its tensor. Mutants move every element, and are judged in the same way.
#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "tests/oracle/oracle_case.h"

namespace swarmline::oracle {
namespace {

constexpr double kCodeFactor = 4;
constexpr double kOtherCodesShare = 0.01;

double furthest(const Trace& reference, const Trace& run) {
  double most = 0;
  for (const auto& [name, distance] : distances(reference, run).tensors) {
    most = std::max(most, distance);
  }
  return most;
}

class CodedState : public ::testing::TestWithParam<Factors> {
 protected:
  RunConfig config() const {
    RunConfig config = config_of(GetParam(), DType::kF32);
    config.model.d_model = 64;  // weights large enough for codes
    config.optimizer.state = MomentsKind::k8Bit;
    return config;
  }
};

TEST_P(CodedState, Agrees) {
  for (const std::uint64_t seed : {11, 12, 13}) {
    const References& references = references_of(config());
    const Trace run = run_swarm(swarm_options(config(), seed));
    EXPECT_LT(furthest(references.reference, run), config().optimizer.lr);
    const Comparison worst =
        compare(references.reference, without_furthest(references.reference, run, kOtherCodesShare),
                references.bound);
    EXPECT_LE(worst.ratio, kCodeFactor) << worst.sentence();
    report("CodedState" + GetParam().name(), DType::kF32, worst);
  }
}

TEST_P(CodedState, MutantsDoNot) {
  using Kind = ReferenceMutation::Kind;
  const References& references = references_of(config());
  for (const Kind kind : {Kind::kDropMicrobatch, Kind::kDoubleMicrobatch, Kind::kMissAtOneStage,
                          Kind::kLearningRate, Kind::kClipBeforeReduce}) {
    Trace mutant =
        without_furthest(references.reference, reference_trace(config(), kind), kOtherCodesShare);
    mutant.losses = references.reference.losses;
    mutant.eval_loss = references.reference.eval_loss;
    const Comparison worst = compare(references.reference, mutant, references.bound);
    EXPECT_GT(worst.ratio, kMutantRatio) << static_cast<int>(kind) << ": " << worst.sentence();
    report("CodedStateMutant" + GetParam().name(), DType::kF32, worst);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Some, CodedState,
    ::testing::Values(
        Factors{.stages = 2, .peers = 2, .dropout = true},
        Factors{.stages = 4, .peers = 2, .delay = 1},
        Factors{.stages = 2, .peers = 2, .optimizer = OptimizerKind::kLamb},
        Factors{.stages = 2, .peers = 2, .optimizer = OptimizerKind::kMuon},
        Factors{
            .stages = 4, .peers = 2, .delay = 1, .optimizer = OptimizerKind::kLamb, .tied = false}),
    [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace swarmline::oracle
