// Options, layouts and data that the tests of the optimizer share.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/optimizer/flat_optimizer.h"
#include "tests/kernels/samples.h"

namespace swarmline::testing {

inline OptimizerSection options_of(OptimizerKind kind, MomentsKind state = MomentsKind::k8Bit) {
  OptimizerSection options;
  options.kind = kind;
  options.lr = 0.01;
  options.beta1 = 0.9;
  options.beta2 = 0.95;
  options.weight_decay = 0.1;
  options.clip = 0.5;
  options.warmup_steps = 3;
  options.state = state;
  return options;
}

struct Tensor {
  std::string name;
  std::size_t elements;
};
// Every other tensor without decay; on 64-byte boundaries with gaps between.
inline ParameterLayout layout_of(std::span<const Tensor> tensors) {
  ParameterLayout layout;
  for (const Tensor& tensor : tensors) {
    layout.slots.push_back({.name = tensor.name,
                            .shape = {static_cast<std::int64_t>(tensor.elements)},
                            .offset = layout.elements,
                            .elements = tensor.elements,
                            .decay = layout.slots.size() % 2 == 0});
    layout.elements += (tensor.elements + 16) / 16 * 16;  // at least one element of gap
  }
  layout.tied_offset = layout.elements;
  return layout;
}
// Sizes around those of blocks, chunks and small tensors, of both kinds of state; in all more than
// a piece of what is hashed.
inline ParameterLayout mixed_layout() {
  return layout_of(std::vector<Tensor>{{"embed.tokens.weight", 5000},
                                       {"layers.0.attention.q.weight", 4096},
                                       {"layers.0.attention.q.bias", 64},
                                       {"layers.0.mlp.up.weight", 70001},
                                       {"layers.0.mlp.up.bias", 4095},
                                       {"layers.0.mlp.down.weight", 12289},
                                       {"layers.0.mlp.gate.weight", 300001},
                                       {"final_norm.weight", 1},
                                       {"head.weight", 8192 + 255}});
}

// Values in the slots, `gap` between them.
inline std::vector<float> arena(const ParameterLayout& layout, std::uint64_t seed, float scale,
                                float gap = 0) {
  const std::vector<float> drawn = samples<float>(layout.elements, seed);
  std::vector<float> values(layout.elements, gap);
  for (const ParameterSlot& slot : layout.slots) {
    for (std::size_t i = slot.offset; i < slot.offset + slot.elements; ++i) {
      values[i] = drawn[i] * scale;
    }
  }
  return values;
}
inline MutableBytes bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}
inline BytesView bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace swarmline::testing
