// What the full product leaves out: other models, cuts, wirings, bounds and networks; the same
// agreement.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cluster/resident_model.h"
#include "tests/oracle/oracle_case.h"

namespace swarmline::oracle {
namespace {

using std::chrono::milliseconds;

struct Variant {
  std::string name;
  Factors factors;
  std::function<void(RunConfig&)> change = [](RunConfig&) {};
  std::function<void(SimClusterOptions&)> machine = [](SimClusterOptions&) {};
};

void llama(RunConfig& config) {
  config.model.norm = NormKind::kRmsNorm;
  config.model.activation = ActivationKind::kSwiGlu;
  config.model.positions = PositionKind::kRotary;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.bias = false;
}

// Of fp32: there is no narrow stream of doubles.
void bf16_stream(RunConfig& config) {
  if (config.model.dtype == DType::kF32) config.model.stream = StreamKind::kBF16;
}

// As a CUDA stage does it, with the CPU's products.
void on_devices(SimClusterOptions& options) {
  options.make_model = [](const ModelSpec& spec, const StageSpec& stage,
                          const StageModelOptions& more) -> Result<std::unique_ptr<StageModel>> {
    auto model = make_stage_model(spec, stage, more);
    if (!model) return model;
    return on_a_device(std::move(*model), spec.shape.stream_dtype());
  };
  for (SimPeer& peer : options.peers) peer.way_in = peer.way_out = milliseconds(1);
}

void two_hosts(SimClusterOptions& options) {
  for (std::size_t i = 0; i < options.peers.size(); ++i)
    options.peers[i].host = i % 3 == 0 ? "left" : "right";
}

std::vector<Variant> variants() {
  const Factors two{.stages = 2, .peers = 2, .dropout = true};
  const Factors late{.stages = 4, .peers = 2, .delay = 1, .dropout = true};
  return {
      {"Recompute", two, [](RunConfig& c) { c.pipeline.recompute = Recompute::kAlways; }},
      {"RecomputeDelayed", late, [](RunConfig& c) { c.pipeline.recompute = Recompute::kAlways; }},
      {"SharedLayers", two, [](RunConfig& c) { c.model.share_layers = 2; }},
      {"StaticWiring", two, [](RunConfig& c) { c.pipeline.wiring = WiringKind::kStatic; }},
      {"StaticWiringDelayed", late, [](RunConfig& c) { c.pipeline.wiring = WiringKind::kStatic; }},
      {"Llama", two, llama},
      {"LlamaUntiedLamb",
       {.stages = 4, .peers = 2, .delay = 1, .optimizer = OptimizerKind::kLamb, .tied = false},
       llama},
      {"Muon", {.stages = 2, .peers = 2, .optimizer = OptimizerKind::kMuon, .dropout = true}},
      {"MuonDelayedLlamaUntied",
       {.stages = 4, .peers = 2, .delay = 1, .optimizer = OptimizerKind::kMuon, .tied = false},
       llama},
      {"RotaryKeyBias", two,
       [](RunConfig& c) {
         llama(c);
         c.model.bias = true;
       }},
      {"QkNormHeadDimWindows", late,
       [](RunConfig& c) {
         llama(c);
         c.model.qk_norm = true;
         c.model.head_dim = 6;
         c.model.window = 3;
         c.model.window_pattern = "SL";
       }},
      {"TanhGelu", two, [](RunConfig& c) { c.model.activation = ActivationKind::kGeluTanh; }},
      {"Bottleneck", two, [](RunConfig& c) { c.model.boundary = BoundaryKind::kBottleneck; }},
      {"BottleneckDelayed", late,
       [](RunConfig& c) {
         llama(c);
         c.model.boundary = BoundaryKind::kBottleneck;
         c.model.boundary_factor = 4;
       }},
      {"Maxout", late, [](RunConfig& c) { c.model.boundary = BoundaryKind::kMaxout; }},
      {"MaxoutUnevenRecomputed", two,
       [](RunConfig& c) {
         c.model.boundary = BoundaryKind::kMaxout;
         c.model.boundary_factor = 4;
         c.pipeline.layers = {3, 1};
         c.pipeline.recompute = Recompute::kAlways;
       }},
      {"MaskedDocuments",
       {.stages = 3, .peers = 2, .dropout = true},
       [](RunConfig& c) {
         c.model.layers = 3;
         c.data.mask_documents = true;
       }},
      {"MaskedDocumentsDelayedLlamaRecomputed", late,
       [](RunConfig& c) {
         llama(c);
         c.model.window = 3;
         c.model.window_pattern = "SL";
         c.data.mask_documents = true;
         c.pipeline.recompute = Recompute::kAlways;
       }},
      {"UnevenPeers", late, [](RunConfig& c) { c.pipeline.peers = {1, 3, 2, 1}; }},
      {"UnevenCut", two, [](RunConfig& c) { c.pipeline.layers = {3, 1}; }},
      {"OneInFlight", late,
       [](RunConfig& c) {
         c.pipeline.in_flight = 1;
         c.wiring.in_flight_per_peer = 1;
       }},
      // Fewer microbatches than peers of a stage: some own nothing and still take part.
      {"IdlePeers",
       {.stages = 2, .delay = 1},
       [](RunConfig& c) {
         c.batch.batch = 8;
         c.pipeline.peers = {2, 6};
       }},
      {"Islands",
       {.stages = 2, .peers = 4, .dropout = true},
       [](RunConfig& c) { c.net.islands = Islands::kHost; },
       two_hosts},
      {"IslandsDelayedUneven", late,
       [](RunConfig& c) {
         c.pipeline.peers = {3, 1, 2, 4};
         c.net.islands = Islands::kHost;
       },
       two_hosts},
      {"EvaluationsInBetween", late, [](RunConfig& c) { c.eval.every_steps = 1; }},
      {"EvaluationsWithoutDelay", two, [](RunConfig& c) { c.eval.every_steps = 2; }},
      {"CheckpointsInBetween", late, [](RunConfig& c) { c.checkpoint.every_steps = 1; }},
      {"OnDevices", two, [](RunConfig&) {}, on_devices},
      {"OnDevicesDelayedLambLlama",
       {.stages = 4, .peers = 2, .delay = 1, .optimizer = OptimizerKind::kLamb},
       llama,
       on_devices},
      {"OnDevicesCheckpointsRecomputed", late,
       [](RunConfig& c) {
         c.checkpoint.every_steps = 1;
         c.pipeline.recompute = Recompute::kAlways;
       },
       on_devices},
      {"Bf16Stream", two, bf16_stream},
      {"Bf16StreamDelayedLlamaRecomputed", late,
       [](RunConfig& c) {
         llama(c);
         bf16_stream(c);
         c.pipeline.recompute = Recompute::kAlways;
       }},
      {"Bf16StreamOnDevices", two, bf16_stream, on_devices},
      {"NoClipping", two, [](RunConfig& c) { c.optimizer.clip = 0; }},
      {"LongDelays", late, [](RunConfig&) {},
       [](SimClusterOptions& o) {
         o.link = {
             .latency = milliseconds(50), .jitter = milliseconds(400), .bytes_per_second = 1e6};
       }},
      {"Straggler", two, [](RunConfig&) {},
       [](SimClusterOptions& o) {
         o.peers.at(1) = {
             .forward = milliseconds(400), .backward = milliseconds(800), .jitter = 0.5};
       }},
  };
}

class Variants : public ::testing::TestWithParam<Variant> {};

TEST_P(Variants, Agree) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    RunConfig config = config_of(GetParam().factors, dtype);
    GetParam().change(config);
    SimClusterOptions options = swarm_options(config, 11);
    GetParam().machine(options);
    const References& references = references_of(config);
    const Comparison worst =
        compare(references.reference, run_swarm(std::move(options)), references.bound);
    EXPECT_LE(worst.ratio, 1) << worst.sentence();
    report(GetParam().name, dtype, worst);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Variants, ::testing::ValuesIn(variants()),
                         [](const auto& info) { return info.param.name; });

// Or the two variants above would show nothing.
TEST(MaskedDocuments, AreAnotherTraining) {
  RunConfig config = config_of({.stages = 1, .peers = 1}, DType::kF64);
  const References& whole = references_of(config);
  config.data.mask_documents = true;
  const Comparison worst = compare(whole.reference, references_of(config).reference, whole.bound);
  EXPECT_GT(worst.ratio, kMutantRatio) << worst.sentence();
}

// Other delays, orders and shares from each seed; the same training.
class Seeds : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Seeds, Agree) {
  const RunConfig config =
      config_of({.stages = 4, .peers = 2, .delay = 1, .dropout = true}, DType::kF64);
  const References& references = references_of(config);
  const Comparison worst =
      compare(references.reference, run_swarm(swarm_options(config, GetParam())), references.bound);
  EXPECT_LE(worst.ratio, 1) << worst.sentence();
}

INSTANTIATE_TEST_SUITE_P(Thirty, Seeds, ::testing::Range<std::uint64_t>(1000, 1030));

}  // namespace
}  // namespace swarmline::oracle
