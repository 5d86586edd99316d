#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "console/exit_codes.h"
#include "engine/config/load.h"
#include "node/memory_report.h"
#include "node/stage_table.h"
#include "tools/memory/transformer_report.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kShapeMax = 1U << 24;  // of any number of a shape

// A number of 0: as the config or the preset has it.
struct ShapeFlags {
  std::string preset;
  std::uint64_t layers = 0, width = 0, mlp_width = 0, heads = 0, vocab = 0, sequence = 0;
};

struct StageFlags {
  std::string config;
  std::vector<std::string> overrides;
  ShapeFlags shape;
  std::uint64_t kv_heads = 0, microbatch = 0, batch = 0, stages = 0, peers = 0, in_flight = 0;
  std::vector<std::uint32_t> cut;
  std::string optimizer;
  bool json = false;
};

struct OneDeviceFlags {
  ShapeFlags shape;
  TrainingSetup setup;
  std::string optimizer = "adam";
  std::string precision = "O0";
  bool json = false;
};

void add_shape_flags(CLI::App& command, ShapeFlags& flags) {
  std::vector<std::string> names;
  for (const TransformerShape& shape : known_transformers()) names.emplace_back(shape.name);
  command.add_option("--model", flags.preset, "A known shape to begin with, e.g. gpt2-xl")
      ->check(CLI::IsMember(names))
      ->type_name("NAME");
  const auto number = [&](const char* name, std::uint64_t& value, const char* help) {
    command.add_option(name, value, help)
        ->check(CLI::Range(std::uint64_t{1}, kShapeMax))
        ->type_name("N");
  };
  number("--layers", flags.layers, "Layers of the model");
  number("--width", flags.width, "Hidden size (d_model)");
  number("--mlp-width", flags.mlp_width, "Hidden size of the MLP; default: 4 times the width");
  number("--heads", flags.heads, "Attention heads");
  number("--vocab", flags.vocab, "Tokens in the vocabulary");
  number("--sequence", flags.sequence, "Tokens in a sequence");
}

// What a flag says wins over the preset.
Result<TransformerShape> shape_of(const ShapeFlags& flags) {
  TransformerShape shape{
      .name = "", .layers = 0, .width = 0, .mlp_width = 0, .heads = 0, .sequence = 0, .vocab = 0};
  if (!flags.preset.empty()) shape = *find_transformer(flags.preset);
  const auto take = [](std::uint64_t said, std::uint64_t& value) {
    if (said != 0) value = said;
  };
  take(flags.layers, shape.layers);
  take(flags.width, shape.width);
  if (flags.width != 0) shape.mlp_width = 4 * flags.width;
  take(flags.mlp_width, shape.mlp_width);
  take(flags.heads, shape.heads);
  take(flags.vocab, shape.vocab);
  take(flags.sequence, shape.sequence);
  const bool whole =
      shape.layers != 0 && shape.width != 0 && shape.vocab != 0 && shape.sequence != 0;
  if (whole) return shape;
  return fail(ErrorCode::kUserMistake,
              "memory: expected a config, --model NAME, or all of --layers, --width, --heads, "
              "--vocab and --sequence; \"swarmline memory --help\" has examples");
}

// The flags as keys of a config.
Result<std::vector<std::string>> overrides_of(const StageFlags& flags) {
  std::vector<std::string> keys;
  const auto set = [&](const char* key, std::uint64_t value) {
    if (value != 0) keys.push_back(fmt::format("{}={}", key, value));
  };
  if (flags.config.empty()) {
    auto shape = shape_of(flags.shape);
    if (!shape) return std::unexpected(std::move(shape).error());
    keys.emplace_back("data.kind=tokens");
    keys.emplace_back("data.files=[\"none\"]");
    set("model.layers", shape->layers);
    set("model.d_model", shape->width);
    set("model.d_ff", shape->mlp_width);
    set("model.heads", shape->heads);
    set("model.vocab", shape->vocab);
    set("batch.sequence", shape->sequence);
    const std::uint64_t rows = flags.microbatch == 0 ? 1 : flags.microbatch;
    set("batch.microbatch", rows);
    set("batch.batch", flags.batch == 0 ? 256 * rows : flags.batch);
  } else {
    set("model.layers", flags.shape.layers);
    set("model.d_model", flags.shape.width);
    set("model.d_ff", flags.shape.mlp_width);
    set("model.heads", flags.shape.heads);
    set("model.vocab", flags.shape.vocab);
    set("batch.sequence", flags.shape.sequence);
    set("batch.microbatch", flags.microbatch);
    set("batch.batch", flags.batch);
  }
  set("model.kv_heads", flags.kv_heads);
  set("pipeline.stages", flags.cut.empty() ? flags.stages : flags.cut.size());
  set("pipeline.peers", flags.peers);
  set("pipeline.in_flight", flags.in_flight);
  if (!flags.cut.empty())
    keys.push_back(fmt::format("pipeline.layers=[{}]", fmt::join(flags.cut, ",")));
  if (flags.optimizer.starts_with("lamb")) keys.emplace_back("optimizer.kind=lamb");
  if (flags.optimizer.starts_with("adamw")) keys.emplace_back("optimizer.kind=adamw");
  if (!flags.optimizer.empty())
    keys.emplace_back(flags.optimizer.ends_with("-8bit") ? "optimizer.state=8bit"
                                                         : "optimizer.state=fp32");
  keys.insert(keys.end(), flags.overrides.begin(), flags.overrides.end());
  return keys;
}

Result<std::string> stage_report(const StageFlags& flags) {
  if (!flags.config.empty() && !flags.shape.preset.empty())
    return fail(ErrorCode::kUserMistake, "memory: expected a config or --model NAME, not both");
  auto keys = overrides_of(flags);
  if (!keys) return std::unexpected(std::move(keys).error());
  auto config = flags.config.empty() ? run_config_from_text("config_version = 1\n", "flags", *keys)
                                     : load_run_config(flags.config, *keys);
  if (!config) return std::unexpected(std::move(config).error());
  // With a config the data is asked what vocabulary it needs, where it is here.
  if (!flags.config.empty()) {
    auto check = check_config(std::move(*config));
    if (!check) return std::unexpected(std::move(check).error());
    return flags.json ? memory_json(check->config, check->model, check->stages)
                      : memory_text(check->config, check->stages);
  }
  const auto model = resolve_model_of_config(*config);
  if (!model) return std::unexpected(model.error());
  const auto stages = stage_holdings(*config, *model);
  if (!stages) return std::unexpected(stages.error());
  return flags.json ? memory_json(*config, *model, *stages) : memory_text(*config, *stages);
}

Result<std::string> one_device_report(OneDeviceFlags flags) {
  auto shape = shape_of(flags.shape);
  if (!shape) return std::unexpected(std::move(shape).error());
  if (flags.setup.groups > shape->layers)
    return fail(ErrorCode::kUserMistake,
                fmt::format("--groups: found {}, expected at most the {} layers of the model",
                            flags.setup.groups, shape->layers));
  for (const auto optimizer : {TrainingOptimizer::kAdam, TrainingOptimizer::k16BitAdam,
                               TrainingOptimizer::kAdafactor, TrainingOptimizer::k8BitAdam})
    if (to_string(optimizer) == flags.optimizer) flags.setup.optimizer = optimizer;
  for (const auto precision :
       {TrainingPrecision::kO0, TrainingPrecision::kO1, TrainingPrecision::kO3})
    if (to_string(precision) == flags.precision) flags.setup.precision = precision;
  return flags.json ? training_memory_json(*shape, flags.setup)
                    : training_memory_text(*shape, flags.setup);
}

void add_one_device_command(CLI::App& memory, int& exit_code) {
  auto flags = std::make_shared<OneDeviceFlags>();
  CLI::App* command = memory.add_subcommand(
      "one-device", "What training the whole model on one device would take, without a swarm");
  add_shape_flags(*command, flags->shape);
  command->add_option("--batch", flags->setup.batch, "Sequences in a batch")
      ->check(CLI::Range(std::uint64_t{1}, kShapeMax))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--optimizer", flags->optimizer, "Optimizer")
      ->check(CLI::IsMember({"adam", "16-bit-adam", "adafactor", "8-bit-adam"}))
      ->capture_default_str()
      ->type_name("NAME");
  command->add_option("--precision", flags->precision, "O0: fp32, O1: mixed, O3: fp16")
      ->check(CLI::IsMember({"O0", "O1", "O3"}))
      ->capture_default_str()
      ->type_name("NAME");
  command
      ->add_option("--groups", flags->setup.groups,
                   "Sets of parameters that all layers share; 0: each has its own")
      ->check(CLI::Range(std::uint64_t{0}, kShapeMax))
      ->type_name("N");
  command->add_flag("--checkpointing", flags->setup.checkpointing,
                    "Keep each layer's input alone, and compute the rest again");
  command->add_flag("--offload", flags->setup.offload,
                    "Keep gradients and optimizer state in the host's memory");
  command->add_flag("--json", flags->json, "Machine-readable output (docs/formats/memory.md)");
  command->footer(
      "Example: swarmline memory one-device --model gpt2-xl --optimizer 8-bit-adam --precision O1");
  command->callback([flags, &exit_code] {
    const auto text = one_device_report(*flags);
    if (text) std::fputs(text->c_str(), stdout);
    exit_code = text ? kExitDone : report_error(text.error());
  });
}

void add_stage_flags(CLI::App& command, StageFlags& flags) {
  command.add_option("config", flags.config, "A run's config; its data need not be here")
      ->type_name("CONFIG");
  command.add_option("--set", flags.overrides, "Any key of the config, as for launch")
      ->type_name("SECTION.KEY=VALUE");
  add_shape_flags(command, flags.shape);
  const auto number = [&](const char* name, std::uint64_t& value, const char* help) {
    return command.add_option(name, value, help)
        ->check(CLI::Range(std::uint64_t{1}, kShapeMax))
        ->type_name("N");
  };
  number("--kv-heads", flags.kv_heads, "Key and value heads; default: as many as heads");
  number("--microbatch", flags.microbatch, "Sequences in a microbatch");
  number("--batch", flags.batch, "Sequences in a step");
  CLI::Option* const stages = number("--stages", flags.stages, "Stages, cut by cost");
  command.add_option("--cut", flags.cut, "Layers of each stage instead, e.g. 4,4,4")
      ->delimiter(',')
      ->excludes(stages)
      ->type_name("N,...");
  number("--peers", flags.peers, "Peers of each stage");
  number("--in-flight", flags.in_flight, "Microbatches under way from each peer of stage 0");
  command.add_option("--optimizer", flags.optimizer, "Optimizer, and how its state is kept")
      ->check(CLI::IsMember({"adamw", "adamw-8bit", "lamb", "lamb-8bit"}))
      ->type_name("NAME");
  command.add_flag("--json", flags.json, "Machine-readable output (docs/formats/memory.md)");
}

}  // namespace

void add_memory_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<StageFlags>();
  CLI::App* command =
      app.add_subcommand("memory", "Show what a peer of each stage takes of memory, and what fits");
  add_stage_flags(*command, *flags);
  add_one_device_command(*command, exit_code);
  command->footer(
      "How it is counted: docs/memory.md.\n"
      "Examples:\n"
      "  swarmline memory run.toml --set pipeline.stages=8\n"
      "  swarmline memory --model gpt3-13b --stages 16 --optimizer lamb-8bit\n"
      "  swarmline memory one-device --model gpt2-xl --checkpointing");
  command->callback([flags, command, &exit_code] {
    if (!command->get_subcommands().empty()) return;
    const auto text = stage_report(*flags);
    if (text) std::fputs(text->c_str(), stdout);
    exit_code = text ? kExitDone : report_error(text.error());
  });
}

}  // namespace swarmline
