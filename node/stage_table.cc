#include "node/stage_table.h"

#include <fmt/format.h>

#include "balancer/cut.h"
#include "console/text.h"
#include "engine/config/load.h"
#include "engine/optimizer/state_layout.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr int kCheckFormat = 1;

// Arenas of a stage's size: parameters, the open step's accumulator and the reduced gradient; an
// open step more with delay 1 keeps its version and accumulator too. And two moments.
std::uint64_t state_bytes(const RunConfig& config, const ParameterLayout& layout) {
  const std::uint64_t arenas = config.pipeline.delay == 1 ? 5 : 3;
  return arenas * layout.bytes() + 2 * make_state_layout(config.optimizer, layout).bytes;
}

std::uint64_t elements_of(const ParameterLayout& layout) {
  std::uint64_t sum = 0;
  for (const ParameterSlot& slot : layout.slots) sum += slot.elements;
  return sum;
}

// Of the model: a tied embedding held by two stages counts once.
std::uint64_t model_parameters(const ModelSpec& model, const std::vector<StageHolding>& holdings) {
  std::vector<StageSpec> cut;
  for (const StageHolding& holding : holdings) cut.push_back(holding.stage);
  return elements_of(make_layout(model, whole_model(model, cut)));
}

}  // namespace

Result<std::vector<StageHolding>> stage_holdings(const RunConfig& config, const ModelSpec& model) {
  const ModelCosts costs = model_costs(model);
  auto cuts = cut_layers(costs, {.stages = config.pipeline.stages,
                                 .share_layers = config.model.share_layers,
                                 .stage_speeds = {},
                                 .layers = config.pipeline.layers});
  if (!cuts) return std::unexpected(std::move(cuts).error());
  double all_flops = 0;
  for (const StageSpec& stage : *cuts) all_flops += stage_flops(costs, stage);

  std::vector<StageHolding> holdings;
  for (const StageSpec& stage : *cuts) {
    const ParameterLayout layout = make_layout(model, stage);
    holdings.push_back(
        {.stage = stage,
         .peers = config.pipeline.peers.at(stage.stage.value),
         .parameters = elements_of(layout),
         .state_bytes = state_bytes(config, layout),
         .activation_bytes = retained_bytes(model, stage, config.batch.microbatch,
                                            config.pipeline.recompute == Recompute::kAlways),
         .flops_share = stage_flops(costs, stage) / all_flops});
  }
  return holdings;
}

std::string check_text(const RunConfig& config, const RunData& data,
                       const std::vector<StageHolding>& stages) {
  std::string out = to_toml(config);
  out += fmt::format("\n# {}: {} steps of {} sequences x {} tokens, in {} microbatches a step\n",
                     config.run.name, config.run.steps, config.batch.batch, config.batch.sequence,
                     config.microbatches_per_step());
  const double epochs = static_cast<double>(config.run.steps * config.batch.batch) /
                        static_cast<double>(data.dataset.train_sequences());
  out += fmt::format(
      "# data: {} files, {} tokens; {} sequences to train on ({:.2f} epochs), {} held out\n",
      with_commas(data.dataset.files()), with_commas(data.dataset.tokens()),
      with_commas(data.dataset.train_sequences()), epochs,
      with_commas(data.dataset.held_out_sequences()));
  out += fmt::format("# model: {} parameters, vocabulary {}\n#\n",
                     with_commas(model_parameters(data.model, stages)), data.model.shape.vocab);
  out += fmt::format("# {:<6} {:<9} {:>5} {:>14} {:>12} {:>24} {:>8}\n", "stage", "layers", "peers",
                     "parameters", "state", "activations/microbatch", "FLOPs");
  for (const StageHolding& holding : stages) {
    out += fmt::format(
        "# {:<6} {:<9} {:>5} {:>14} {:>12} {:>24} {:>6.1f} %\n", holding.stage.stage.value,
        fmt::format("{}-{}", holding.stage.first_layer, holding.stage.last_layer - 1),
        holding.peers, with_commas(holding.parameters),
        human_bytes(static_cast<double>(holding.state_bytes)),
        human_bytes(static_cast<double>(holding.activation_bytes)), 100 * holding.flops_share);
  }
  if (config.codec.error_feedback || config.codec.averaging == "topk")
    out +=
        "#\n# What averaging's codec loses is kept by each peer for the next step and dies with "
        "it: a "
        "run that\n# loses peers will not end with the parameters of the run that loses none.\n";
  return out;
}

std::string check_json(const RunConfig& config, const RunData& data,
                       const std::vector<StageHolding>& stages) {
  JsonWriter json(2);
  json.begin_object()
      .member("format", kCheckFormat)
      .member("run", config.run.name)
      .member("config_toml", to_toml(config))
      .member("vocab", data.model.shape.vocab)
      .member("parameters", model_parameters(data.model, stages))
      .member("tokens", data.dataset.tokens())
      .member("train_sequences", data.dataset.train_sequences())
      .member("held_out_sequences", data.dataset.held_out_sequences());
  json.key("stages").begin_array();
  for (const StageHolding& holding : stages) {
    json.begin_object()
        .member("stage", holding.stage.stage.value)
        .member("first_layer", holding.stage.first_layer)
        .member("last_layer", holding.stage.last_layer)
        .member("peers", holding.peers)
        .member("parameters", holding.parameters)
        .member("state_bytes", holding.state_bytes)
        .member("activation_bytes_per_microbatch", holding.activation_bytes)
        .member("flops_share", holding.flops_share)
        .end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
