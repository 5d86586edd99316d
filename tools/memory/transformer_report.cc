#include "tools/memory/transformer_report.h"

#include <string_view>

#include <fmt/format.h>

#include "console/text.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr int kTrainingMemoryFormat = 1;

}  // namespace

std::string training_memory_text(const TransformerShape& shape, const TrainingSetup& setup) {
  const TrainingMemory memory = training_memory(shape, setup);
  std::string out = fmt::format(
      "{}{} layers of width {}, {} parameters; batch {} x {} tokens, {}, {}{}\n",
      shape.name.empty() ? "" : fmt::format("{}: ", shape.name), shape.layers, shape.width,
      with_commas(static_cast<std::uint64_t>(memory.parameters)), setup.batch, shape.sequence,
      to_string(setup.optimizer), to_string(setup.precision),
      setup.groups == 0 ? "" : fmt::format(", layers share {} sets of parameters", setup.groups));
  const auto line = [&](std::string_view name, double bytes) {
    out += fmt::format("  {:<16} {:>12}\n", name, human_bytes(bytes));
  };
  const double offloaded = setup.offload ? 0 : 1;
  line("weights", memory.weight_bytes);
  line("gradients", offloaded * memory.gradient_bytes);
  line("optimizer state", offloaded * memory.optimizer_bytes);
  line(setup.checkpointing ? "layers' inputs" : "activations", memory.activation_bytes);
  line("on the device", memory.device_bytes);
  if (setup.offload) {
    line("on the host", memory.host_bytes);
    out += fmt::format("  each step moves that in {:.0f} ms at 12 GiB/s\n",
                       memory.transfer_seconds * 1000);
  }
  out +=
      "Real runs take 20 to 30 % more. By the formulas of the memory calculator of Training\n"
      "Transformers Together; a swarm's stages: swarmline memory --stages N (docs/memory.md).\n";
  return out;
}

std::string training_memory_json(const TransformerShape& shape, const TrainingSetup& setup) {
  const TrainingMemory memory = training_memory(shape, setup);
  const double there = setup.offload ? 0 : 1;
  JsonWriter json(2);
  return json.begin_object()
             .member("format", kTrainingMemoryFormat)
             .member("model", shape.name)
             .member("layers", shape.layers)
             .member("width", shape.width)
             .member("mlp_width", shape.mlp_width)
             .member("vocab", shape.vocab)
             .member("sequence", shape.sequence)
             .member("batch", setup.batch)
             .member("optimizer", to_string(setup.optimizer))
             .member("precision", to_string(setup.precision))
             .member("checkpointing", setup.checkpointing)
             .member("offload", setup.offload)
             .member("groups", setup.groups)
             .member("parameters", memory.parameters)
             .member("weight_bytes", memory.weight_bytes)
             .member("gradient_bytes", there * memory.gradient_bytes)
             .member("optimizer_bytes", there * memory.optimizer_bytes)
             .member("activation_bytes", memory.activation_bytes)
             .member("device_bytes", memory.device_bytes)
             .member("host_bytes", memory.host_bytes)
             .member("transfer_seconds", memory.transfer_seconds)
             .end_object()
             .take() +
         "\n";
}

}  // namespace swarmline
