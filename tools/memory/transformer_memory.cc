#include "tools/memory/transformer_memory.h"

#include <algorithm>
#include <iterator>

#include "base/units.h"

namespace swarmline {
namespace {

constexpr TransformerShape kKnown[] = {
    {"bert-base", 12, 768, 3072, 12, 512, 30522},
    {"bert-large", 24, 1024, 4096, 16, 512, 30522},
    {"t5-3b", 48, 1024, 16384, 32, 512, 32128},
    {"t5-11b", 48, 1024, 65536, 128, 512, 32128},
    {"gpt2-s", 12, 768, 3072, 12, 1024, 50257},
    {"gpt2-m", 24, 1024, 4096, 16, 1024, 50257},
    {"gpt2-l", 36, 1280, 5120, 20, 1024, 50257},
    {"gpt2-xl", 48, 1600, 6400, 25, 1024, 50257},
    {"gpt3-s", 12, 768, 3072, 12, 2048, 50257},
    {"gpt3-m", 24, 1024, 4096, 16, 2048, 50257},
    {"gpt3-l", 24, 1536, 6144, 16, 2048, 50257},
    {"gpt3-xl", 24, 2560, 10240, 32, 2048, 50257},
    {"gpt3-3b", 32, 2560, 10240, 32, 2048, 50257},
    {"gpt3-7b", 32, 4096, 16384, 32, 2048, 50257},
    {"gpt3-13b", 40, 5120, 20480, 40, 2048, 50257},
    {"gpt3-175b", 96, 12288, 49152, 96, 2048, 50257},
    {"gpt-j-6b", 28, 4096, 16384, 16, 2048, 50400},
    {"dalle-12b", 64, 3968, 15872, 62, 1280, 24576},
};

constexpr double kTransferBytesPerSecond = 12.0 * kGiB;

double number(std::uint64_t count) {
  return static_cast<double>(count);
}

struct ElementBytes {
  double weight, gradient, activation;
};

ElementBytes element_bytes(TrainingPrecision precision) {
  switch (precision) {
    case TrainingPrecision::kO0:
      return {4, 4, 4};
    case TrainingPrecision::kO1:
      return {4 + 2, 2, 2};
    case TrainingPrecision::kO3:
      return {2, 2, 2};
  }
  return {};
}

double state_bytes(TrainingOptimizer optimizer) {
  switch (optimizer) {
    case TrainingOptimizer::kAdam:
      return 8;
    case TrainingOptimizer::k16BitAdam:
    case TrainingOptimizer::kAdafactor:
      return 4;
    case TrainingOptimizer::k8BitAdam:
      return 2;
  }
  return 0;
}

double stored_parameters(const TransformerShape& shape, std::uint64_t groups) {
  const double d = number(shape.width);
  const double layer = 4 * d * d + 2 * d * number(shape.mlp_width) + d;
  const std::uint64_t stored = groups == 0 ? shape.layers : groups;
  return number(stored) * layer + number(shape.vocab) * d + d;
}

double kept_activations(const TransformerShape& shape, const TrainingSetup& setup) {
  const double d = number(shape.width);
  const double tokens = number(setup.batch) * number(shape.sequence);
  const double input = tokens * d;
  const double mlp = 3 * (2 * tokens * number(shape.mlp_width) + 2 * tokens * d);
  const double attention = 5 * (8 * tokens * d + 3 * tokens * number(shape.sequence));
  const double layer = setup.checkpointing ? input : mlp + attention + input;
  return number(shape.layers) * layer + tokens * (3 * d + 2 * number(shape.vocab));
}

}  // namespace

std::span<const TransformerShape> known_transformers() {
  return kKnown;
}

const TransformerShape* find_transformer(std::string_view name) {
  const auto* const found = std::ranges::find(kKnown, name, &TransformerShape::name);
  return found == std::end(kKnown) ? nullptr : found;
}

std::string_view to_string(TrainingOptimizer optimizer) {
  constexpr std::string_view kNames[] = {"adam", "16-bit-adam", "adafactor", "8-bit-adam"};
  return kNames[static_cast<std::size_t>(optimizer)];
}

std::string_view to_string(TrainingPrecision precision) {
  constexpr std::string_view kNames[] = {"O0", "O1", "O3"};
  return kNames[static_cast<std::size_t>(precision)];
}

TrainingMemory training_memory(const TransformerShape& shape, const TrainingSetup& setup) {
  const ElementBytes bytes = element_bytes(setup.precision);
  TrainingMemory memory;
  memory.parameters = stored_parameters(shape, setup.groups);
  memory.weight_bytes = memory.parameters * bytes.weight;
  memory.gradient_bytes = memory.parameters * bytes.gradient;
  memory.optimizer_bytes = memory.parameters * state_bytes(setup.optimizer);
  memory.activation_bytes = kept_activations(shape, setup) * bytes.activation;
  const double offloaded = memory.gradient_bytes + memory.optimizer_bytes;
  memory.device_bytes =
      memory.weight_bytes + memory.activation_bytes + (setup.offload ? 0 : offloaded);
  memory.host_bytes = setup.offload ? offloaded : 0;
  memory.transfer_seconds = memory.host_bytes / kTransferBytesPerSecond;
  return memory;
}

}  // namespace swarmline
