#include "engine/model/model_spec.h"

namespace swarmline {
namespace {

// Norms, activations, residuals and softmax are bound by memory, not arithmetic: one pass over one
// element costs about as much as this many FLOPs of a matrix product.
constexpr double kFlopsPerElementPass = 12;
// A matrix product's backward is two products of its size; elementwise backward is about twice its
// forward, too.
constexpr double kForwardAndBackward = 3;

struct Widths {
  double d, kv, ff, up;  // up: width of what the first MLP product makes (twice ff when gated)
  double heads;
  double tokens;
};

Widths widths_of(const ModelSpec& spec) {
  const ModelSection& shape = spec.shape;
  const double d = shape.d_model;
  const double ff = shape.d_ff;
  const bool gated = shape.activation == ActivationKind::kSwiGlu;
  return {d,
          d / shape.heads * shape.kv_heads,
          ff,
          gated ? 2 * ff : ff,
          double(shape.heads),
          double(spec.sequence)};
}

// Elements that one layer keeps per token for its backward.
double kept_per_token(const ModelSpec& spec) {
  const ModelSection& shape = spec.shape;
  const Widths w = widths_of(spec);
  const double norms = 2 * (2 * w.d + 2);  // input, output, two statistics
  double attention = w.d + 2 * w.kv;       // q, k, v
  if (shape.positions == PositionKind::kRotary) attention += w.d + w.kv;  // turned copies
  if (shape.kv_heads != shape.heads) attention += 2 * w.d;                // k and v repeated
  attention += w.d + w.heads;                                             // output, log-sum-exp
  return norms + attention + w.up + w.ff;
}

}  // namespace

ModelCosts model_costs(const ModelSpec& spec) {
  const ModelSection& shape = spec.shape;
  const Widths w = widths_of(spec);
  const double weights = w.d * (w.d + 2 * w.kv) + w.d * w.d + w.d * w.up + w.ff * w.d;
  const double causal = w.tokens * w.d;  // two products of d per pair of tokens, half of the pairs
  const double passes = 8 * w.d + w.up + 2 * w.ff + (shape.dropout > 0 ? 4 * w.d : 0);
  const double layer = 2 * weights + 2 * causal + kFlopsPerElementPass * passes;
  const double head = 2 * w.d * shape.vocab + kFlopsPerElementPass * (2 * w.d + 2 * shape.vocab);
  const double embedding = kFlopsPerElementPass * w.d * (shape.dropout > 0 ? 4 : 2);
  const double scale = kForwardAndBackward * w.tokens;
  return {std::vector<double>(shape.layers, scale * layer), scale * embedding, scale * head};
}

std::uint64_t retained_bytes(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows,
                             bool recompute) {
  const Widths w = widths_of(spec);
  const double element_bytes = static_cast<double>(size_bytes(spec.shape.dtype));
  constexpr double kTokenBytes = sizeof(std::int32_t);
  double per_token = stage.has_embedding() ? kTokenBytes : w.d * element_bytes;
  if (stage.has_head()) per_token += kTokenBytes;
  if (!recompute) {
    if (stage.has_embedding()) per_token += w.d * element_bytes;
    per_token += (stage.last_layer - stage.first_layer) * kept_per_token(spec) * element_bytes;
    if (stage.has_head())
      per_token += (2 * w.d + 2 + spec.shape.vocab) * element_bytes;
    else
      per_token += w.d * element_bytes;  // the output, which the graph hangs on
  }
  return static_cast<std::uint64_t>(per_token * w.tokens * rows);
}

}  // namespace swarmline
