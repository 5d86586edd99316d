#include "tests/protocol/protocol_fixture.h"

#include <algorithm>
#include <limits>

#include "engine/config/load.h"
#include "pipeline/reference/reference_trainer.h"
#include "sim/cluster/synthetic_source.h"

namespace swarmline {

namespace {

// Runs that differ by rounding alone are apart by a few times what a few samples of them are.
constexpr double kNoiseFactor = 4;

Tensors run_reference_once(const RunConfig& config, const ModelHooks& hooks, std::uint32_t vocab,
                           std::uint64_t permute_sums) {
  SyntheticSource source(config.run.seed, vocab, config.batch.sequence);
  ReferenceOptions options{.config = config, .model = *resolve_model(config, vocab)};
  options.make_model = hooked(make_stage_model, hooks);
  options.permute_sums = permute_sums;
  auto result = run_reference(options, source, [](const ReferenceStep&) {});
  EXPECT_TRUE(result.has_value()) << result.error().what;
  Tensors tensors;
  if (!result) return tensors;
  const std::size_t width = size_bytes(result->layout.dtype);
  for (const ParameterSlot& slot : result->layout.slots) {
    const std::byte* first = result->parameters.data() + slot.offset * width;
    tensors[slot.name].assign(first, first + slot.elements * width);
  }
  return tensors;
}

}  // namespace

Reference reference_with(const RunConfig& config, const ModelHooks& hooks, std::uint32_t vocab) {
  std::vector<Tensors> runs;
  for (int seed = 0; seed <= kPermutedReferences; ++seed)
    runs.push_back(run_reference_once(config, hooks, vocab, static_cast<std::uint64_t>(seed)));
  Reference reference{.tensors = runs.front()};
  for (const Tensors& one : runs)
    for (const Tensors& other : runs)
      for (const auto& [name, bytes] : one)
        if (is_key_bias(name))
          reference.key_bias_noise =
              std::max(reference.key_bias_noise, largest_difference(bytes, other.at(name)));
  return reference;
}

ModelHooks poison() {
  ModelHooks hooks;
  hooks.after_backward = [](StageId stage, int, const BackwardInput& input) {
    const MicrobatchId poisoned{{PhaseKind::kTrain, 1}, 2};
    if (stage.value != 0 || input.id.microbatch != poisoned || !input.weight_gradients) return;
    reinterpret_cast<double*>(input.accumulator.data())[0] =
        std::numeric_limits<double>::quiet_NaN();
  };
  return hooks;
}

void expect_equal(const Tensors& got, const Reference& want) {
  expect_equal(got, want.tensors, kNoiseFactor * want.key_bias_noise);
}

const Reference& reference_of(const RunConfig& config, std::uint32_t vocab) {
  static std::map<std::string, Reference> known;
  // The cut and the network do not matter to it.
  RunConfig same = config;
  same.pipeline.stages = 1;
  same.pipeline.peers = {1};
  same.pipeline.in_flight = 0;
  same.pipeline.wiring = WiringKind::kStochastic;
  same.wiring = {};
  same.net = {};
  same.balance = {};
  const auto [entry, first] = known.try_emplace(to_toml(same) + std::to_string(vocab));
  if (first) entry->second = reference_with(same, {}, vocab);
  return entry->second;
}

RunConfig Protocol::run_of(std::vector<std::uint32_t> peers) const {
  RunConfig config = small_run(static_cast<std::uint32_t>(peers.size()), 1);
  config.pipeline.peers = std::move(peers);
  config.pipeline.delay = GetParam();
  return config;
}

SimClusterOptions Protocol::options_for(const RunConfig& config, ModelHooks hooks) {
  models_.clear();
  hooks.made = [this](StageId, int, const StageModel& model) { models_.push_back(&model); };
  return swarm_of(config, hooked(make_stage_model, std::move(hooks)));
}

void Protocol::expect_no_graphs(int killed_at_work) const {
  const auto keeps_any = [](const StageModel* model) { return model->saved_graphs() > 0; };
  EXPECT_LE(std::ranges::count_if(models_, keeps_any), killed_at_work);
}

void Protocol::twice(const RunConfig& config, const Change& change, const Scenario& scenario) {
  std::optional<std::uint64_t> first;
  // That a run is the same twice does not hang on the delay, and all seeds show it with either.
  const int runs = GetParam() == 0 ? 2 : 1;
  for (int run = 0; run < runs; ++run) {
    SimClusterOptions options = options_for(config);
    change(options);
    Swarm swarm(std::move(options));
    swarm.until_started();
    scenario(swarm);
    if (testing::Test::HasFatalFailure()) return;
    swarm.finish();
    if (testing::Test::HasFailure()) return;
    expect_equal(swarm.cluster().parameters(), reference_of(config));
    const std::uint64_t hash = swarm.cluster().trace_hash();
    EXPECT_EQ(first.value_or(hash), hash);
    first = hash;
  }
}

void Protocol::expect_reference(Swarm& swarm, const RunConfig& config, int killed_at_work) {
  swarm.finish();
  if (testing::Test::HasFailure()) return;
  expect_equal(swarm.cluster().parameters(), reference_of(config));
  expect_no_graphs(killed_at_work);
}

}  // namespace swarmline
