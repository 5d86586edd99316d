#include "node/stage_table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "balancer/cut.h"
#include "console/text.h"
#include "engine/config/load.h"
#include "engine/data/mixture.h"
#include "engine/store/json_writer.h"
#include "pipeline/averaging/averaging_codecs.h"

namespace swarmline {
namespace {

constexpr int kCheckFormat = 1;

std::uint64_t elements_of(const ParameterLayout& layout) {
  std::uint64_t sum = 0;
  for (const ParameterSlot& slot : layout.slots) sum += slot.elements;
  return sum;
}

void add_needs(const MemoryQuestion& question, StageHolding& holding) {
  const bool recomputes = question.config.pipeline.recompute == Recompute::kAlways;
  holding.memory_recomputing = peer_memory(question, true);
  holding.memory = recomputes ? holding.memory_recomputing : peer_memory(question, false);
  holding.cuda = cuda_peer_memory(question, recomputes);
  holding.needed_bytes = holding.memory.total();
  holding.needed_recomputing_bytes = holding.memory_recomputing.total();
  holding.state_bytes =
      holding.memory.parameters + holding.memory.gradients + holding.memory.optimizer;
  holding.activation_bytes =
      retained_bytes(question.model, holding.stage, question.config.batch.microbatch, recomputes);
  holding.in_flight = under_way_at(question.config, holding.stage).microbatches;
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
    StageHolding holding{.stage = stage,
                         .peers = config.pipeline.peers.at(stage.stage.value),
                         .parameters = elements_of(layout),
                         .saved_bytes = saved_state_bytes(config, layout),
                         .memory = {},
                         .memory_recomputing = {},
                         .cuda = {},
                         .flops_share = stage_flops(costs, stage) / all_flops};
    add_needs({.config = config, .model = model, .cut = *cuts, .stage = stage.stage.value},
              holding);
    holdings.push_back(std::move(holding));
  }
  return holdings;
}

Result<std::vector<std::uint64_t>> least_memory(const RunConfig& config, const ModelSpec& model) {
  const auto holdings = stage_holdings(config, model);
  if (!holdings) return std::unexpected(holdings.error());
  std::vector<std::uint64_t> least;
  for (const StageHolding& holding : *holdings) {
    const bool may_recompute = config.pipeline.recompute != Recompute::kNever;
    least.push_back(
        std::min(may_recompute ? holding.needed_recomputing_bytes : holding.needed_bytes,
                 holding.cuda.device.total()));
  }
  return least;
}

Result<ConfigCheck> check_config(RunConfig config) {
  auto missing = missing_data(config);
  if (!missing) return std::unexpected(std::move(missing).error());
  ConfigCheck check{
      .config = std::move(config), .model = {}, .data = {}, .missing = *missing, .stages = {}};
  if (check.missing.empty()) {
    auto data = open_run_data(check.config, false);
    if (!data) return std::unexpected(std::move(data).error());
    check.model = std::move(data->model);
    check.data = std::move(data->dataset);
  } else {
    auto model = resolve_model_of_config(check.config);
    if (!model)
      return fail(model.error().code, fmt::format("{}; [data] files: nothing matches \"{}\"",
                                                  model.error().what, check.missing));
    check.model = std::move(*model);
  }
  auto stages = stage_holdings(check.config, check.model);
  if (!stages) return std::unexpected(std::move(stages).error());
  check.stages = std::move(*stages);
  return check;
}

namespace {

// How often each entry comes.
std::string mixture_text(const RunConfig& config, const TokenDataset& data) {
  const Mixture mixture(data.weights(), config.run.seed);
  const auto sequences = static_cast<double>(config.run.steps * config.batch.batch);
  std::string text;
  for (std::uint32_t part = 0; part < data.parts(); ++part) {
    const double share = mixture.share(part) / static_cast<double>(kMixtureParts);
    const auto own = static_cast<double>(data.train_sequences(part));
    text += fmt::format("#   {:.2f} % from {} ({:.2f} epochs of it)\n", 100 * share,
                        config.data.files[part], share * sequences / own);
  }
  return text;
}

std::string data_text(const ConfigCheck& check) {
  if (!check.data)
    return fmt::format(
        "# data: not checked, since nothing on this machine matches \"{}\": neither how much there "
        "is\n#       to train on, nor whether its tokens fit the vocabulary\n",
        check.missing);
  const TokenDataset& data = *check.data;
  const double epochs = static_cast<double>(check.config.run.steps * check.config.batch.batch) /
                        static_cast<double>(data.train_sequences());
  std::string text = fmt::format(
      "# data: {} files, {} tokens; {} sequences to train on ({:.2f} epochs), {} held out\n",
      with_commas(data.files()), with_commas(data.tokens()), with_commas(data.train_sequences()),
      epochs, with_commas(data.held_out_sequences()));
  if (!data.weights().empty()) text += mixture_text(check.config, data);
  return text;
}

std::string needs_text(const std::vector<StageHolding>& stages, Recompute recompute) {
  const auto bytes = [](std::uint64_t count) { return human_bytes(static_cast<double>(count)); };
  std::string out = "#\n# A peer needs about, beside what libtorch itself takes:\n";
  for (const StageHolding& holding : stages) {
    out += fmt::format("#   stage {:<4} {:>10} for {} of state and {} microbatches",
                       holding.stage.stage.value, bytes(holding.needed_bytes),
                       bytes(holding.state_bytes), holding.in_flight);
    if (recompute == Recompute::kAuto)
      out += fmt::format("; {} if it recomputes", bytes(holding.needed_recomputing_bytes));
    out += "\n";
  }
  return out;
}

std::string stages_text(const std::vector<StageHolding>& stages, Recompute recompute) {
  std::string out =
      fmt::format("# {:<6} {:<9} {:>5} {:>14} {:>12} {:>24} {:>8}\n", "stage", "layers", "peers",
                  "parameters", "state", "activations/microbatch", "FLOPs");
  for (const StageHolding& holding : stages) {
    out += fmt::format(
        "# {:<6} {:<9} {:>5} {:>14} {:>12} {:>24} {:>6.1f} %\n", holding.stage.stage.value,
        fmt::format("{}-{}", holding.stage.first_layer, holding.stage.last_layer - 1),
        holding.peers, with_commas(holding.parameters),
        human_bytes(static_cast<double>(holding.state_bytes)),
        human_bytes(static_cast<double>(holding.activation_bytes)), 100 * holding.flops_share);
  }
  out += needs_text(stages, recompute);
  return out;
}

}  // namespace

std::string check_text(const ConfigCheck& check) {
  const RunConfig& config = check.config;
  std::string out = to_toml(config);
  out += fmt::format("\n# {}: {} steps of {} sequences x {} tokens, in {} microbatches a step\n",
                     config.run.name, config.run.steps, config.batch.batch, config.batch.sequence,
                     config.microbatches_per_step());
  out += data_text(check);
  out += fmt::format("# model: {} parameters, vocabulary {}\n#\n",
                     with_commas(model_parameters(check.model, check.stages)),
                     check.model.shape.vocab);
  out += stages_text(check.stages, config.pipeline.recompute);
  if (keeps_residuals(config))
    out +=
        "#\n# What averaging's codec loses is kept by each peer for the next step and dies with "
        "it: a "
        "run that\n# loses peers will not end with the parameters of the run that loses none.\n";
  return out;
}

std::string check_json(const ConfigCheck& check) {
  const auto of_data = [&](auto count) {
    return check.data ? std::optional<std::uint64_t>(count(*check.data)) : std::nullopt;
  };
  JsonWriter json(2);
  json.begin_object()
      .member("format", kCheckFormat)
      .member("run", check.config.run.name)
      .member("config_toml", to_toml(check.config))
      .member("vocab", check.model.shape.vocab)
      .member("parameters", model_parameters(check.model, check.stages))
      .member("data_missing",
              check.data ? std::nullopt : std::optional<std::string_view>(check.missing))
      .member("tokens", of_data([](const TokenDataset& data) { return data.tokens(); }))
      .member("train_sequences",
              of_data([](const TokenDataset& data) { return data.train_sequences(); }))
      .member("held_out_sequences",
              of_data([](const TokenDataset& data) { return data.held_out_sequences(); }));
  json.key("stages").begin_array();
  for (const StageHolding& holding : check.stages) {
    json.begin_object()
        .member("stage", holding.stage.stage.value)
        .member("first_layer", holding.stage.first_layer)
        .member("last_layer", holding.stage.last_layer)
        .member("peers", holding.peers)
        .member("parameters", holding.parameters)
        .member("state_bytes", holding.state_bytes)
        .member("activation_bytes_per_microbatch", holding.activation_bytes)
        .member("microbatches_in_flight", holding.in_flight)
        .member("needed_bytes", holding.needed_bytes)
        .member("needed_recomputing_bytes", holding.needed_recomputing_bytes)
        .member("flops_share", holding.flops_share)
        .end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
