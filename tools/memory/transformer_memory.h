// What training a whole Transformer takes on one device, without a swarm: by the formulas of the
// memory calculator of Training Transformers Together.
//   Units:   elements, bytes, seconds. Rows are sequences of a batch; `groups` layers are stored
//            where layers share parameters (0: each has its own).
//   What:    weights, gradients and optimizer state by the numeric format; activations that a
//            backward needs, with GELU, or the layers' inputs alone with checkpointing (the
//            recomputed layer's own are not counted, as there); the head's logits twice. What
//            frameworks and allocators take beside comes on top: 20 to 30 % by the source.
//   Oddities of the source that are kept, so that its numbers come out: attention probabilities
//            count once for all heads, T5 has no cross-attention, its gpt3-xl is 2560 wide.
//   Source:  Borzunov et al., Training Transformers Together, NeurIPS 2021 demonstrations.
//   Thread:  pure. Errors: none; sizes are above 0.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace swarmline {

struct TransformerShape {
  std::string_view name;  // empty: nobody's
  std::uint64_t layers = 1;
  std::uint64_t width = 1;
  std::uint64_t mlp_width = 1;
  std::uint64_t heads = 1;  // nothing here depends on it
  std::uint64_t sequence = 1;
  std::uint64_t vocab = 1;
};
std::span<const TransformerShape> known_transformers();
const TransformerShape* find_transformer(std::string_view name);  // null: nobody knows it

enum class TrainingOptimizer : std::uint8_t { kAdam, k16BitAdam, kAdafactor, k8BitAdam };
enum class TrainingPrecision : std::uint8_t {
  kO0,
  kO1,
  kO3
};  // fp32, mixed, fp16 (as NVIDIA's apex)
std::string_view to_string(TrainingOptimizer optimizer);  // as the command line has it
std::string_view to_string(TrainingPrecision precision);

struct TrainingSetup {
  TrainingOptimizer optimizer = TrainingOptimizer::kAdam;
  TrainingPrecision precision = TrainingPrecision::kO0;
  std::uint64_t batch = 1;
  bool checkpointing = false;
  bool offload = false;      // gradients and optimizer state in the host's memory
  std::uint64_t groups = 0;  // of layers that share parameters; 0: none do
};

struct TrainingMemory {
  double parameters = 0;  // elements
  double weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0, activation_bytes = 0;
  double device_bytes = 0;  // all of it, or with offload what stays
  double host_bytes = 0;
  double transfer_seconds = 0;  // of a step, with offload: 12 GiB/s
};
TrainingMemory training_memory(const TransformerShape& shape, const TrainingSetup& setup);

}  // namespace swarmline
