#include "tests/oracle/oracle_case.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/config/load.h"
#include "sim/cluster/synthetic_source.h"
#include "tests/oracle/oracle_log.h"

namespace swarmline::oracle {
namespace {

// What a run in one process has to know of a config: the reference is blind to how the swarm is
// cut, wired, bounded, and to how its graphs are kept.
RunConfig without_pipeline(RunConfig config) {
  PipelineSection pipeline;
  pipeline.delay = config.pipeline.delay;
  if (config.model.boundary != BoundaryKind::kNone) {  // the model has boundaries where it is cut
    pipeline.stages = config.pipeline.stages;
    pipeline.peers.assign(pipeline.stages, 1);
    pipeline.layers = config.pipeline.layers;
  }
  config.pipeline = pipeline;
  config.pipeline.recompute = Recompute::kNever;
  config.wiring = {};
  config.checkpoint = {};
  config.eval = {};
  config.net = {};
  return config;
}

ModelSpec model_of(const RunConfig& config) {
  auto model = resolve_model(config, kVocab);
  SWARMLINE_CHECK_MSG(model.has_value(), model ? "" : model.error().what);
  return *model;
}

ReferenceOptions reference_options(const RunConfig& config) {
  return {.config = config, .model = model_of(config), .eval_sequences = kEvalSequences};
}

MakeSource synthetic(const RunConfig& config) {
  return [seed = config.run.seed, sequence = config.batch.sequence] {
    return std::make_unique<SyntheticSource>(seed, kVocab, sequence);
  };
}

struct ReferenceRun {
  Trace trace;
  double gradient_norm_least = std::numeric_limits<double>::infinity();
};

ReferenceRun run_one(const ReferenceOptions& options, const MakeSource& make_source) {
  ReferenceRun run;
  const auto source = make_source();
  auto result = run_reference(options, *source, [&](const ReferenceStep& step) {
    run.trace.losses.push_back(step.loss);
    run.gradient_norm_least = std::min(run.gradient_norm_least, step.gradient_norm);
  });
  SWARMLINE_CHECK_MSG(result.has_value(), result ? "" : result.error().what);
  run.trace.dtype = result->layout.dtype;
  run.trace.eval_loss = result->eval_loss;
  const std::size_t width = size_bytes(result->layout.dtype);
  for (const ParameterSlot& slot : result->layout.slots) {
    run.trace.tensors[slot.name] = to_doubles(
        BytesView(result->parameters.bytes()).subspan(slot.offset * width, slot.elements * width),
        result->layout.dtype);
  }
  return run;
}

const char* name_of(OptimizerKind kind) {
  return kind == OptimizerKind::kAdamW ? "Adamw" : kind == OptimizerKind::kLamb ? "Lamb" : "Muon";
}

}  // namespace

std::string Factors::reference_name() const {
  return fmt::format("Delay{}{}{}{}", delay, name_of(optimizer), tied ? "Tied" : "Untied",
                     dropout ? "Dropout" : "");
}

std::string Factors::name() const {
  return fmt::format("S{}P{}{}", stages, peers, reference_name());
}

std::vector<Factors> full_product() {
  std::vector<Factors> product;
  for (const std::uint32_t delay : {0U, 1U})
    for (const OptimizerKind optimizer : {OptimizerKind::kAdamW, OptimizerKind::kLamb})
      for (const bool tied : {false, true})
        for (const bool dropout : {false, true})
          for (const std::uint32_t stages : {1U, 2U, 4U})
            for (const std::uint32_t peers : {1U, 2U, 3U})
              product.push_back({stages, peers, delay, optimizer, tied, dropout});
  return product;
}

RunConfig config_of(const Factors& factors, DType dtype) {
  RunConfig config;
  config.run.steps = 5;
  config.run.seed = 7;
  config.model = {.layers = 4, .d_model = 16, .heads = 2, .dtype = dtype};
  config.model.tied_embeddings = factors.tied;
  config.model.dropout = factors.dropout ? 0.1 : 0;
  config.data.files = {"synthetic"};
  config.batch = {.batch = 16, .microbatch = 2, .sequence = 8};
  config.optimizer.kind = factors.optimizer;
  config.optimizer.lr = 1e-2;
  config.optimizer.clip = 0.3;  // every step is clipped
  config.optimizer.warmup_steps = 2;
  config.codec = {.forward = "none", .backward = "none"};
  config.pipeline.stages = factors.stages;
  config.pipeline.peers.assign(factors.stages, factors.peers);
  config.pipeline.delay = factors.delay;
  return config;
}

Trace run_reference_trace(const ReferenceOptions& options, const MakeSource& make_source) {
  return run_one(options, make_source).trace;
}

References run_references(ReferenceOptions options, const MakeSource& make_source) {
  SWARMLINE_CHECK(options.config.microbatches_per_step() >= kMicrobatchesMin);
  References all;
  ReferenceRun straight = run_one(options, make_source);
  all.reference = std::move(straight.trace);
  all.gradient_norm_least = straight.gradient_norm_least;
  for (int seed = 1; seed <= kPermutedRuns; ++seed) {
    options.permute_sums = static_cast<std::uint64_t>(seed);
    all.permuted.push_back(run_reference_trace(options, make_source));
  }
  const ModelSection& model = options.config.model;
  all.bound = model.dtype == DType::kF64
                  ? relative_bound(model, all.reference, all.permuted, kFloat64Relative)
                  : measured_bound(model, all.reference, all.permuted);
  return all;
}

const References& references_of(const RunConfig& config) {
  static std::map<std::string, References> known;
  const RunConfig bare = without_pipeline(config);
  const std::string key = to_toml(bare);
  if (!known.contains(key)) {
    known.emplace(key, run_references(reference_options(bare), synthetic(bare)));
  }
  return known.at(key);
}

Trace reference_trace(const RunConfig& config, ReferenceMutation::Kind mutation) {
  ReferenceOptions options = reference_options(without_pipeline(config));
  options.mutation = {mutation};
  return run_reference_trace(options, synthetic(config));
}

SimClusterOptions swarm_options(const RunConfig& config, std::uint64_t seed) {
  init_log({.level = LogLevel::kError});  // hundreds of swarms in one process
  using std::chrono::milliseconds;
  SimClusterOptions options;
  options.config = config;
  options.vocab = kVocab;
  options.seed = seed;
  options.eval_sequences = kEvalSequences;
  options.link = {.latency = milliseconds(2), .jitter = milliseconds(5), .bytes_per_second = 50e6};
  options.make_model = make_stage_model;
  std::uint32_t count = 0;
  for (const std::uint32_t peers : config.pipeline.peers) count += peers;
  for (std::uint32_t i = 0; i < count; ++i) {
    const int slower = 1 + static_cast<int>(i % 3);
    options.peers.push_back(
        {.forward = milliseconds(4) * slower, .backward = milliseconds(8) * slower, .jitter = 0.3});
  }
  return options;
}

Trace run_swarm(SimClusterOptions options) {
  SimCluster cluster(std::move(options));
  return finish(cluster);
}

Trace finish(SimCluster& cluster) {
  const auto outcome = cluster.run(kVirtualLimit);
  if (!outcome || outcome->exit_code != 0) {
    ADD_FAILURE() << (outcome ? outcome->sentence : cluster.coordinator().status_json());
    return {};
  }
  Trace trace;
  read_log(cluster.log_lines(), trace);
  for (std::size_t i = 0; i < cluster.peers(); ++i) {
    if (cluster.peer(i).layout() != nullptr) trace.dtype = cluster.peer(i).layout()->dtype;
  }
  for (const auto& [name, bytes] : cluster.parameters()) {
    trace.tensors[name] = to_doubles(bytes, trace.dtype);
  }
  return trace;
}

void report(const std::string& name, DType dtype, const Comparison& worst) {
  if (std::getenv("SWARMLINE_ORACLE_REPORT") == nullptr) return;
  fmt::print("{} {} {}\n", name, dtype == DType::kF64 ? "fp64" : "fp32", worst.sentence());
}

}  // namespace swarmline::oracle
