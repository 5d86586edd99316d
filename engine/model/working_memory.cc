#include "engine/model/working_memory.h"

#include <algorithm>

#include "engine/model/documents.h"

namespace swarmline {
namespace {

constexpr double kF32Bytes = 4, kBf16Bytes = 2, kTokenBytes = 4;

struct Sizes {
  double d, q, kv, ff, up, heads, vocab, travels;
  double layers;
  double tokens;
};

Sizes sizes_of(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows) {
  const ModelSection& shape = spec.shape;
  const double d = shape.d_model, ff = shape.d_ff;
  return {.d = d,
          .q = double(shape.head_width()) * shape.heads,
          .kv = double(shape.head_width()) * shape.kv_heads,
          .ff = ff,
          .up = shape.activation == ActivationKind::kSwiGlu ? 2 * ff : ff,
          .heads = double(shape.heads),
          .vocab = double(shape.vocab),
          .travels = double(spec.hidden_width()),
          .layers = double(stage.last_layer - stage.first_layer),
          .tokens = double(spec.sequence) * rows};
}

// Per token and layer.
double layer_bytes_on_cuda(const ModelSpec& spec, const Sizes& s) {
  const ModelSection& shape = spec.shape;
  const bool repeats = shape.kv_heads != shape.heads;
  const bool copies = shape.positions == PositionKind::kRotary || shape.qk_norm;
  const double norms = 2 * (s.d * (kF32Bytes + kBf16Bytes) + 2 * kF32Bytes);
  double mixing = repeats && copies ? 0 : s.q + 2 * s.kv;  // as in costs.cc
  if (shape.qk_norm) mixing += 2 * (s.q + s.kv);           // normed in fp32
  if (copies) mixing += repeats ? s.q : s.q + s.kv;
  if (repeats) mixing += 2 * s.q;
  return norms + (mixing + s.q + s.up + s.ff) * kBf16Bytes + s.heads * kF32Bytes;
}

// The backward of one layer, in elements a token: what flows back through its MLP, or through its
// attention, beside the gradient of the residual stream.
double layer_backward(const ModelSpec& spec, const Sizes& s) {
  const bool gated = spec.shape.activation == ActivationKind::kSwiGlu;
  const double mlp = gated ? 5 * s.ff : 2 * s.ff;
  const double attention = 3 * s.q + 2 * (s.q + 2 * s.kv);
  return std::max(mlp, attention) + 3 * s.d;
}

}  // namespace

std::uint64_t retained_bytes_on_cuda(const ModelSpec& spec, const StageSpec& stage,
                                     std::uint32_t rows, bool recompute) {
  if (spec.shape.dtype == DType::kF64) return retained_bytes(spec, stage, rows, recompute);
  const Sizes s = sizes_of(spec, stage, rows);
  double per_token = stage.has_embedding() ? kTokenBytes : s.travels * kF32Bytes;
  if (stage.has_head()) per_token += kTokenBytes;
  if (!recompute) {
    per_token += s.layers * layer_bytes_on_cuda(spec, s);
    // Masks of spans of several documents, as in costs.cc.
    if (spec.mask_documents)
      per_token += 2.0 * kTogetherOnCuda * (spec.shape.window > 0 ? 2 : 1) * kBf16Bytes;
    per_token += stage.has_head() ? s.d * (kF32Bytes + kBf16Bytes) + s.vocab * kBf16Bytes
                                  : s.travels * kF32Bytes;
  }
  return static_cast<std::uint64_t>(per_token * s.tokens);
}

std::uint64_t working_bytes(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows) {
  const Sizes s = sizes_of(spec, stage, rows);
  const double layer = layer_backward(spec, s);
  // The head's part is gone when the last layer's begins.
  const double head = stage.has_head() ? s.vocab + 2 * s.d : 0;
  const double decoded = stage.has_head() ? 0 : s.travels;
  const double elements = std::max(head, layer + decoded - head);
  const auto element_bytes = static_cast<double>(size_bytes(spec.shape.dtype));
  return static_cast<std::uint64_t>(elements * element_bytes * s.tokens);
}

}  // namespace swarmline
