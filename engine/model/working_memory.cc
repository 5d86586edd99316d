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

double stream_bytes(const ModelSpec& spec) {
  return static_cast<double>(size_bytes(spec.shape.stream_dtype()));
}

// Per token and layer.
double layer_bytes_on_cuda(const ModelSpec& spec, const Sizes& s) {
  const ModelSection& shape = spec.shape;
  const bool repeats = shape.kv_heads != shape.heads;
  const bool copies = shape.positions == PositionKind::kRotary || shape.qk_norm;
  const double norms = 2 * (s.d * (stream_bytes(spec) + kBf16Bytes) + 2 * kF32Bytes);
  double mixing = repeats && copies ? 0 : s.q + 2 * s.kv;  // as in costs.cc
  if (shape.qk_norm) mixing += 2 * (s.q + s.kv);           // normed in fp32
  if (copies) mixing += repeats ? s.q : s.q + s.kv;
  if (repeats) mixing += 2 * s.q;
  return norms + (mixing + s.q + s.up + s.ff) * kBf16Bytes + s.heads * kF32Bytes;
}

bool is_gated(const ModelSpec& spec) {
  return spec.shape.activation == ActivationKind::kSwiGlu;
}

// What the backward of one layer has at most beyond what the layer kept, in elements a token: the
// gradient of the residual stream, and what flows back through its MLP, of which the result is one
// more or what the second product read is gone; or through its attention, when what the MLP kept is
// gone.
double layer_backward(const ModelSpec& spec, const Sizes& s) {
  const double mlp = is_gated(spec) ? s.d + 4 * s.ff : 2 * s.d + s.ff;
  const double attention = s.d + s.q + 2 * (s.q + 2 * s.kv) - (s.up + s.ff + s.d);
  return std::max(mlp, attention);
}

}  // namespace

std::uint64_t retained_bytes_on_cuda(const ModelSpec& spec, const StageSpec& stage,
                                     std::uint32_t rows, bool recompute) {
  if (spec.shape.dtype == DType::kF64) return retained_bytes(spec, stage, rows, recompute);
  const Sizes s = sizes_of(spec, stage, rows);
  double per_token = stage.has_embedding() ? kTokenBytes : s.travels * stream_bytes(spec);
  if (stage.has_head()) per_token += kTokenBytes;
  if (!recompute) {
    per_token += s.layers * layer_bytes_on_cuda(spec, s);
    // Masks of spans of several documents, as in costs.cc.
    if (spec.mask_documents)
      per_token += 2.0 * kTogetherOnCuda * (spec.shape.window > 0 ? 2 : 1) * kBf16Bytes;
    per_token += stage.has_head() ? s.d * (stream_bytes(spec) + kBf16Bytes) + s.vocab * kBf16Bytes
                                  : s.travels * stream_bytes(spec);
  }
  return static_cast<std::uint64_t>(per_token * s.tokens);
}

std::uint64_t working_bytes(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows) {
  const Sizes s = sizes_of(spec, stage, rows);
  // What the head kept, as much as its backward has besides, is gone when the last layer's begins.
  const double head = stage.has_head() ? s.vocab + 2 * s.d : 0;
  const double elements = std::max(head, layer_backward(spec, s) - head);
  const auto element_bytes = static_cast<double>(size_bytes(spec.shape.dtype));
  return static_cast<std::uint64_t>(elements * element_bytes * s.tokens);
}

std::uint64_t bytes_until_added(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows) {
  const Sizes s = sizes_of(spec, stage, rows);
  const double read = 2 * s.d + s.q + s.ff;                  // what a layer's products read
  const double gradients = s.q + 2 * s.kv + s.up + 2 * s.d;  // of what they gave
  double elements = s.layers * (read + gradients);
  if (stage.has_head()) elements += s.d + s.vocab;
  if (spec.has_boundary()) {  // products: where it receives, and a sending bottleneck
    double ends = stage.has_embedding() ? 0 : 1;
    if (!stage.has_head() && spec.shape.boundary == BoundaryKind::kBottleneck) ++ends;
    elements += ends * (s.travels + s.d);
  }
  const auto element_bytes = static_cast<double>(size_bytes(spec.shape.dtype));
  return static_cast<std::uint64_t>(elements * element_bytes * s.tokens);
}

}  // namespace swarmline
