#include <algorithm>
#include <utility>

#include "engine/model/documents.h"
#include "engine/model/model_spec.h"
#include "engine/model/working_memory.h"

namespace swarmline {
namespace {

// Norms, activations, residuals and softmax are bound by memory, not arithmetic: one pass over one
// element costs about as much as this many FLOPs of a matrix product.
constexpr double kFlopsPerElementPass = 12;
// A matrix product's backward is two products of its size; elementwise backward is about twice its
// forward, too.
constexpr double kForwardAndBackward = 3;

struct Widths {
  double d, q, kv, ff, up;  // up: width of what the first MLP product makes (twice ff when gated)
  double heads;
  double tokens;
};

Widths widths_of(const ModelSpec& spec) {
  const ModelSection& shape = spec.shape;
  const double d = shape.d_model;
  const double ff = shape.d_ff;
  const bool gated = shape.activation == ActivationKind::kSwiGlu;
  const double head = shape.head_width();
  return {d,
          head * shape.heads,
          head * shape.kv_heads,
          ff,
          gated ? 2 * ff : ff,
          double(shape.heads),
          double(spec.sequence)};
}

// Elements that one layer keeps per token of what attention mixes. Copies are kept in the place of
// what they are made of; the product's result as a whole, as long as one of q, k and v is in it.
double attention_per_token(const ModelSection& shape, double q, double kv) {
  const bool copies = shape.positions == PositionKind::kRotary || shape.qk_norm;
  const bool repeats = shape.kv_heads != shape.heads;
  double kept = repeats && copies ? 0 : q + 2 * kv;
  if (shape.qk_norm) kept += q + kv + shape.heads + shape.kv_heads;  // normed, statistics
  if (copies) kept += repeats ? q : q + kv;
  if (repeats) kept += 2 * q;
  return kept;
}

// Elements that one layer keeps per token for its backward, beside kStreamsPerLayer times the
// residual stream.
constexpr double kStreamsPerLayer = 2;  // what its norms read
double kept_per_token(const ModelSpec& spec) {
  const ModelSection& shape = spec.shape;
  const Widths w = widths_of(spec);
  const double norms = 2 * (w.d + 2);  // output, two statistics
  const double attention = attention_per_token(shape, w.q, w.kv) + w.q + w.heads;  // mixed, sums
  return norms + attention + w.up + w.ff;
}

// Elements of the masks that all layers share where attention stays within documents, per token: at
// most so many, of spans that are as long as spans of several documents get.
double masks_per_token(const ModelSpec& spec) {
  if (!spec.mask_documents) return 0;
  return 2.0 * kTogetherOnCpu * (spec.shape.window > 0 ? 2 : 1);
}

// Of a learned boundary, per token: FLOPs of its ends and elements that its sending end keeps
// beside the norm's input (two statistics and output of the norm, of which a maxout keeps one byte
// for each element that travels instead).
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
    return {product + passes, product, 2 + d};
  }
  const double bytes = 1.0 / static_cast<double>(size_bytes(spec.shape.dtype));
  return {passes + kFlopsPerElementPass * d, product, 2 + width * bytes};
}

}  // namespace

double layer_matrix_flops(const ModelSpec& spec, std::uint32_t layer) {
  const Widths w = widths_of(spec);
  const double weights = w.d * (w.q + 2 * w.kv) + w.q * w.d + w.d * w.up + w.ff * w.d;
  double causal = w.tokens * w.q;    // two products of q per pair of tokens, half of the pairs
  if (spec.shape.has_window(layer))  // blocks of queries, with all keys that any of them sees
    causal = w.q * std::min(w.tokens, 4.0 * spec.shape.window);
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
  std::vector<double> layers;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer)
    layers.push_back(layer_matrix_flops(spec, layer) + scale * kFlopsPerElementPass * passes);
  return {.layer_flops = std::move(layers),
          .embedding_flops = scale * embedding,
          .head_flops = scale * head,
          .sending_flops = scale * boundary.sending,
          .receiving_flops = scale * boundary.receiving};
}

std::uint64_t retained_bytes(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows,
                             bool recompute) {
  const Widths w = widths_of(spec);
  const auto element_bytes = static_cast<double>(size_bytes(spec.shape.dtype));
  const auto stream_bytes = static_cast<double>(size_bytes(spec.shape.stream_dtype()));
  constexpr double kTokenBytes = sizeof(std::int32_t);
  const double travels = spec.hidden_width();
  const double layers = stage.last_layer - stage.first_layer;
  double per_token = stage.has_embedding() ? kTokenBytes : travels * stream_bytes;
  if (stage.has_head()) per_token += kTokenBytes;
  if (spec.mask_documents) per_token += sizeof(std::int64_t);  // lengths of documents, at most
  if (!recompute) {
    per_token += masks_per_token(spec) * element_bytes;
    // What comes in is what the first norm keeps, but for a copy between them.
    const bool is_copied = stage.has_embedding() ? spec.shape.dropout > 0 : spec.has_boundary();
    if (stage.has_embedding()) per_token += w.d * stream_bytes;
    if (!is_copied && layers > 0) per_token -= w.d * stream_bytes;
    per_token +=
        layers * (kept_per_token(spec) * element_bytes + kStreamsPerLayer * w.d * stream_bytes);
    if (stage.has_head())
      per_token += w.d * stream_bytes + (w.d + 2 + spec.shape.vocab) * element_bytes;
    else
      per_token += travels * stream_bytes;  // the output, which the graph hangs on
    if (spec.has_boundary()) {
      const double ends = w.d * stream_bytes + boundary_costs(spec).kept * element_bytes;
      if (!stage.has_head()) per_token += ends;
      // What the receiving end's product read, of which a copy is in the products' type.
      const double read = travels * element_bytes;
      if (!stage.has_embedding() && stream_bytes < element_bytes) per_token += read;
      per_token += static_cast<double>(stage.inner_boundaries.size()) * (ends + read);
    }
  }
  const auto kept = static_cast<std::uint64_t>(per_token * w.tokens * rows);
  // Beside a narrow stream what waits for its weight gradients may be more.
  const bool may_wait = !recompute && !stage.has_embedding();
  return may_wait ? std::max(kept, bytes_until_added(spec, stage, rows)) : kept;
}

}  // namespace swarmline
