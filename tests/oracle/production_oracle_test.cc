// What a machine with a GPU runs, against references: bf16 products, h8 on the links in both
// directions, 8-bit optimizer state, GELU in its tanh form, rotary positions; real processes.
//
// `--reference` knows no links and applies no codecs. So a swarm is judged twice. Against that one
// by its losses alone: codecs are not part of the reference, so it may be as far away as codecs
// take a run (coded_model.h: the same codecs in one process, no swarm), times kNoiseFactor.
// And against a reference through the same codecs by its parameters: the protocol promises that
// they are the same up to the order of sums.
//
// fp64, coded: codecs round to fp32 first. Where a different order of sums moves a value across
// such a boundary, the scale of its block may move by one fp32 rounding (2^-24), and Adam, which
// divides by a gradient's own size, makes more of that: kCodedRelative instead of 1e-9. Mutants
// miss it by kMutantRatio all the same.
//
// fp32, coded: codes of links and of moments, and bf16 operands, may go to the neighbour in any
// run, and do in the permuted ones, too, so the bound is what was measured there. Rare codes are
// left out as in oracle_coded_state_test.cc, for the same reason and in the same share.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/oracle/coded_model.h"
#include "tests/oracle/process_runs.h"

namespace swarmline::oracle {
namespace {

using Kind = ReferenceMutation::Kind;

constexpr double kCodedRelative = 1e-6;
constexpr double kCodeFactor = 4;
constexpr double kOtherCodesShare = 0.01;

RunConfig coded_config(const Factors& factors, DType dtype) {
  RunConfig config = config_of(factors, dtype);
  config.model.d_model = 64;  // weights large enough for codes, rows for blocks of h8
  config.model.activation = ActivationKind::kGeluTanh;
  config.model.positions = PositionKind::kRotary;
  config.codec.forward = "h8";
  config.codec.backward = "h8";
  config.pipeline.layers.assign(factors.stages, config.model.layers / factors.stages);
  return config;
}

RunConfig production_config() {
  RunConfig config = coded_config({.stages = 4, .peers = 2}, DType::kF32);
  config.run.steps = 8;
  config.model.precision = Precision::kBF16;  // what "auto" is on CUDA
  config.optimizer.state = MomentsKind::k8Bit;
  config.optimizer.lr = 3e-3;
  return config;
}

class CodedRuns : public ProcessRuns {
 protected:
  ReferenceOptions coded_options() const {
    ReferenceOptions options = reference_options();
    options.make_model = make_coded_model(config_);
    return options;
  }
  Trace mutant(ReferenceOptions options, Kind kind) const {
    options.mutation = {kind};
    return run_reference_trace(options, make_source());
  }
};

// ---- By parameters ------------------------------------------------------------------------------

class CodedOracle : public CodedRuns, public ::testing::WithParamInterface<Factors> {};

TEST_P(CodedOracle, SwarmEqualsReferenceThroughCodecs) {
  write_files(coded_config(GetParam(), DType::kF64));
  run_swarm_process();
  if (HasFailure()) return;
  const References coded = run_references(coded_options(), make_source());
  const Bound bound =
      relative_bound(config_.model, coded.reference, coded.permuted, kCodedRelative);
  const Comparison worst = compare(coded.reference, swarm_trace(true), bound);
  EXPECT_LE(worst.ratio, 1) << worst.sentence();
  report("Coded" + GetParam().name(), DType::kF64, worst);

  // What the bound sees: codecs that were left out, and a contribution, or a step's length.
  std::vector<Trace> others = {run_reference_trace(reference_options(), make_source())};
  for (const Kind kind : {Kind::kDropMicrobatch, Kind::kDoubleMicrobatch, Kind::kLearningRate})
    others.push_back(mutant(coded_options(), kind));
  for (const Trace& other : others) {
    const Comparison missed = compare(coded.reference, other, bound);
    EXPECT_GT(missed.ratio, kMutantRatio) << missed.sentence();
  }
}

INSTANTIATE_TEST_SUITE_P(Fp64, CodedOracle,
                         ::testing::Values(Factors{.stages = 4, .peers = 2, .dropout = true},
                                           Factors{.stages = 2,
                                                   .peers = 3,
                                                   .delay = 1,
                                                   .optimizer = OptimizerKind::kLamb,
                                                   .tied = false}),
                         [](const auto& info) { return info.param.name(); });

// ---- The production path ------------------------------------------------------------------------

double furthest_loss(const Trace& a, const Trace& b) {
  const Distances apart = distances(a, b);
  return std::max(*std::ranges::max_element(apart.losses), apart.eval_loss);
}

class ProductionOracle : public CodedRuns {
 protected:
  void SetUp() override { write_files(production_config()); }
};

TEST_F(ProductionOracle, LossesAreNearTheReferences) {
  run_swarm_process();
  run_reference_process();
  if (HasFailure()) return;
  const Trace plain = reference_process_trace(false), swarm = swarm_trace(false);
  Trace coded = run_reference_trace(coded_options(), make_source());
  coded.tensors.clear();
  ASSERT_EQ(swarm.losses.size(), config_.run.steps);
  EXPECT_LT(swarm.losses.back(), 0.8 * swarm.losses.front());

  const double codecs = furthest_loss(plain, coded);
  const double bound = kNoiseFactor * codecs;
  const double apart = furthest_loss(plain, swarm);
  EXPECT_GT(apart, 0) << "no codec was applied";
  EXPECT_LE(apart, bound) << fmt::format("losses {} apart; codecs alone make {}", apart, codecs);
  report("ProductionLosses", DType::kF32,
         {.ratio = apart / bound, .where = "losses", .difference = apart, .bound = bound});

  for (const Kind kind : {Kind::kDropMicrobatch, Kind::kDoubleMicrobatch, Kind::kLearningRate}) {
    Trace wrong = mutant(reference_options(), kind);
    wrong.tensors.clear();
    EXPECT_GT(furthest_loss(plain, wrong), bound) << static_cast<int>(kind);
  }
}

TEST_F(ProductionOracle, ParametersAreThoseThroughCodecs) {
  run_swarm_process();
  if (HasFailure()) return;
  const References coded = run_references(coded_options(), make_source());
  const Trace swarm = swarm_trace(true);
  const Comparison worst = compare(
      coded.reference, without_furthest(coded.reference, swarm, kOtherCodesShare), coded.bound);
  EXPECT_LE(worst.ratio, kCodeFactor) << worst.sentence();
  report("ProductionParameters", DType::kF32, worst);

  for (const Kind kind : {Kind::kDropMicrobatch, Kind::kDoubleMicrobatch, Kind::kLearningRate}) {
    Trace wrong =
        without_furthest(coded.reference, mutant(coded_options(), kind), kOtherCodesShare);
    wrong.losses = coded.reference.losses;  // of them a microbatch is missing
    wrong.eval_loss = coded.reference.eval_loss;
    const Comparison missed = compare(coded.reference, wrong, coded.bound);
    EXPECT_GT(missed.ratio, kMutantRatio) << missed.sentence();
    report("ProductionMutant", DType::kF32, missed);
  }
}

}  // namespace
}  // namespace swarmline::oracle
