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

// `run` with the elements of each tensor that are furthest from the reference's put in their place.
Trace without_other_codes(const Trace& reference, Trace run) {
  for (auto& [name, values] : run.tensors) {
    const std::vector<double>& expected = reference.tensors.at(name);
    std::vector<std::size_t> order(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto distance = [&](std::size_t i) { return std::abs(values[i] - expected[i]); };
    std::ranges::sort(order, std::ranges::greater{}, distance);
    const auto others =
        static_cast<std::size_t>(kOtherCodesShare * static_cast<double>(order.size()));
    for (std::size_t i = 0; i < others; ++i) values[order[i]] = expected[order[i]];
  }
  return run;
}

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
    const Comparison worst = compare(
        references.reference, without_other_codes(references.reference, run), references.bound);
    EXPECT_LE(worst.ratio, kCodeFactor) << worst.sentence();
    report("CodedState" + GetParam().name(), DType::kF32, worst);
  }
}

TEST_P(CodedState, MutantsDoNot) {
  using Kind = ReferenceMutation::Kind;
  const References& references = references_of(config());
  for (const Kind kind : {Kind::kDropMicrobatch, Kind::kDoubleMicrobatch, Kind::kMissAtOneStage,
                          Kind::kLearningRate, Kind::kClipBeforeReduce}) {
    Trace mutant = without_other_codes(references.reference, reference_trace(config(), kind));
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
