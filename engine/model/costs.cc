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

// Of a learned boundary, per token: FLOPs of its ends and elements that its sending end keeps
// (input, two statistics and output of the norm, of which a maxout keeps one byte for each element
// that travels instead).
struct BoundaryCosts {
  double sending = 0, receiving = 0;
  double kept = 0;
};

BoundaryCosts boundary_costs(const ModelSpec& spec) {
  if (!spec.has_boundary()) return {};
  const double d = spec.shape.d_model;
  const double width = spec.hidden_width();
  const double product = 2 * d * width;
  const double passes = kFlopsPerElementPass * 2 * d;
  if (spec.shape.boundary == BoundaryKind::kBottleneck) {
    return {product + passes, product, d + 2 + d};
  }
  const double bytes = 1.0 / static_cast<double>(size_bytes(spec.shape.dtype));
  return {passes + kFlopsPerElementPass * d, product, d + 2 + width * bytes};
}

}  // namespace

double layer_matrix_flops(const ModelSpec& spec) {
  const Widths w = widths_of(spec);
  const double weights = w.d * (w.d + 2 * w.kv) + w.d * w.d + w.d * w.up + w.ff * w.d;
  const double causal = w.tokens * w.d;  // two products of d per pair of tokens, half of the pairs
  return kForwardAndBackward * w.tokens * (2 * weights + 2 * causal);
}

ModelCosts model_costs(const ModelSpec& spec) {
  const ModelSection& shape = spec.shape;
  const Widths w = widths_of(spec);
  const double passes = 8 * w.d + w.up + 2 * w.ff + (shape.dropout > 0 ? 4 * w.d : 0);
  const double head = 2 * w.d * shape.vocab + kFlopsPerElementPass * (2 * w.d + 2 * shape.vocab);
  const double embedding = kFlopsPerElementPass * w.d * (shape.dropout > 0 ? 4 : 2);
  const double scale = kForwardAndBackward * w.tokens;
  const BoundaryCosts boundary = boundary_costs(spec);
  const double layer = layer_matrix_flops(spec) + scale * kFlopsPerElementPass * passes;
  return {.layer_flops = std::vector<double>(shape.layers, layer),
          .embedding_flops = scale * embedding,
          .head_flops = scale * head,
          .sending_flops = scale * boundary.sending,
          .receiving_flops = scale * boundary.receiving};
}

std::uint64_t retained_bytes(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows,
                             bool recompute) {
  const Widths w = widths_of(spec);
  const double element_bytes = static_cast<double>(size_bytes(spec.shape.dtype));
  constexpr double kTokenBytes = sizeof(std::int32_t);
  const double travels = spec.hidden_width();
  double per_token = stage.has_embedding() ? kTokenBytes : travels * element_bytes;
  if (stage.has_head()) per_token += kTokenBytes;
  if (!recompute) {
    if (stage.has_embedding()) per_token += w.d * element_bytes;
    per_token += (stage.last_layer - stage.first_layer) * kept_per_token(spec) * element_bytes;
    if (stage.has_head())
      per_token += (2 * w.d + 2 + spec.shape.vocab) * element_bytes;
    else
      per_token += travels * element_bytes;  // the output, which the graph hangs on
    const double ends = boundary_costs(spec).kept * element_bytes;
    if (!stage.has_head()) per_token += ends;
    per_token +=
        static_cast<double>(stage.inner_boundaries.size()) * (ends + travels * element_bytes);
  }
  return static_cast<std::uint64_t>(per_token * w.tokens * rows);
}

}  // namespace swarmline
