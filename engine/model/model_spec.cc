#include "engine/model/model_spec.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace swarmline {
namespace {

// Bounds that keep every product of two of them, times the bytes of an element, far below 2^63.
constexpr std::uint64_t kLayersMax = 1U << 16;
constexpr std::uint64_t kWidthMax = 1U << 20;  // d_model, d_ff
constexpr std::uint64_t kVocabMax = 1U << 26;
constexpr std::uint64_t kSequenceMax = 1U << 24;  // tokens

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

Result<void> require_range(std::string_view key, std::uint64_t value, std::uint64_t max) {
  if (value >= 1 && value <= max) return {};
  return fail(ErrorCode::kUserMistake, std::string(key) + " = " + std::to_string(value) +
                                           ": expected 1 to " + std::to_string(max) + ".");
}

Result<void> require_multiple(std::string_view key, std::uint64_t value, std::string_view unit_key,
                              std::uint64_t unit) {
  if (value % unit == 0) return {};
  return fail(ErrorCode::kUserMistake, std::string(key) + " = " + std::to_string(value) +
                                           " is not a multiple of " + std::string(unit_key) +
                                           " = " + std::to_string(unit) +
                                           ": change one of the two so that it divides evenly.");
}

Result<void> resolve_vocab(ModelSection& shape, std::uint32_t data_vocab) {
  if (shape.vocab == 0) shape.vocab = data_vocab;
  SWARMLINE_TRY(require_range("model.vocab", shape.vocab, kVocabMax));
  if (shape.vocab < data_vocab) {
    return fail(ErrorCode::kUserMistake,
                "model.vocab = " + std::to_string(shape.vocab) + " is less than the data's " +
                    std::to_string(data_vocab) + " tokens: raise it, or leave it 0.");
  }
  return {};
}

Result<void> check_heads(const ModelSection& shape) {
  SWARMLINE_TRY(
      require_range("model.heads", shape.heads, shape.head_dim > 0 ? kWidthMax : shape.d_model));
  SWARMLINE_TRY(require_range("model.kv_heads", shape.kv_heads, shape.heads));
  SWARMLINE_TRY(
      require_range("model.d_model / heads, or head_dim,", shape.head_width(), kWidthMax));
  if (shape.head_dim == 0)
    SWARMLINE_TRY(require_multiple("model.d_model", shape.d_model, "model.heads", shape.heads));
  SWARMLINE_TRY(require_multiple("model.heads", shape.heads, "model.kv_heads", shape.kv_heads));
  if (shape.positions == PositionKind::kRotary && shape.head_width() % 2 != 0) {
    return fail(ErrorCode::kUserMistake,
                "model.positions = \"rotary\" turns pairs, and d_model / heads = " +
                    std::to_string(shape.head_width()) +
                    " is odd: choose heads so that it is even.");
  }
  return {};
}

Result<void> check_boundary(const ModelSection& shape) {
  if (shape.boundary == BoundaryKind::kNone) return {};
  if (shape.boundary_factor != 2 && shape.boundary_factor != 4) {
    return fail(
        ErrorCode::kUserMistake,
        "model.boundary_factor = " + std::to_string(shape.boundary_factor) + ": expected 2 or 4.");
  }
  return require_multiple("model.d_model", shape.d_model, "model.boundary_factor",
                          shape.boundary_factor);
}

// What the fp8 matrix units ask of the widths of every product.
constexpr std::uint64_t kFp8WidthUnit = 16;

Result<void> check_compute(const ModelSection& shape) {
  if (shape.compute == ComputeKind::kNative) return {};
  if (shape.dtype != DType::kF32) {
    return fail(ErrorCode::kUserMistake, "model.compute = \"fp8\" needs model.dtype = \"fp32\".");
  }
  const std::pair<const char*, std::uint64_t> widths[] = {
      {"model.d_model", shape.d_model},
      {"model.d_model / heads * kv_heads", shape.head_width() * shape.kv_heads},
      {"model.d_ff", shape.d_ff}};
  for (const auto& [name, width] : widths) {
    if (width % kFp8WidthUnit == 0) continue;
    return fail(ErrorCode::kUserMistake,
                std::string(name) + " = " + std::to_string(width) +
                    ": model.compute = \"fp8\" needs a multiple of 16; change it, or compute.");
  }
  return {};
}

Result<void> check_numbers(const ModelSection& shape) {
  if (shape.dtype != DType::kF32 && shape.dtype != DType::kF64) {
    return fail(ErrorCode::kUserMistake,
                "model.dtype: parameters are \"fp32\" or \"fp64\" (bf16 is what a CUDA device "
                "computes in, by itself).");
  }
  if (shape.stream == StreamKind::kBF16 && shape.dtype != DType::kF32) {
    return fail(ErrorCode::kUserMistake, "model.stream = \"bf16\" needs model.dtype = \"fp32\".");
  }
  if (!(shape.dropout >= 0 && shape.dropout < 1)) {
    return fail(ErrorCode::kUserMistake, "model.dropout = " + std::to_string(shape.dropout) +
                                             ": expected a share in [0, 1).");
  }
  if (!(shape.norm_eps > 0 && shape.init_std >= 0 && shape.rope_theta > 0)) {
    return fail(ErrorCode::kUserMistake,
                "model.norm_eps and model.rope_theta must be above 0, model.init_std not below.");
  }
  return {};
}

// Appends slots in the order in which they are computed with.
class LayoutBuilder {
 public:
  LayoutBuilder(const ModelSpec& spec, ParameterLayout& layout)
      : shape_(spec.shape),
        sequence_(spec.sequence),
        width_(spec.hidden_width()),
        layout_(layout) {}

  void embedding(bool tokens) {
    if (tokens) token_embedding();
    if (shape_.positions == PositionKind::kLearned) {
      add("embed.positions.weight", {sequence_, shape_.d_model});
    }
  }
  void token_embedding() { add("embed.tokens.weight", {shape_.vocab, shape_.d_model}); }

  void block(std::uint32_t number) {
    const std::string prefix = "layers." + std::to_string(number) + ".";
    const std::int64_t d = shape_.d_model;
    const std::int64_t head = shape_.head_width();
    const std::int64_t q = head * shape_.heads;
    const std::int64_t kv = head * shape_.kv_heads;
    const std::int64_t ff = shape_.d_ff;
    norm(prefix + "attention_norm");
    // q, k and v (and gate and up) side by side: where no gap falls between them, they are one
    // matrix product.
    linears(prefix + "attention.", {{"q", q}, {"k", kv}, {"v", kv}}, d);
    if (shape_.qk_norm)
      for (const char* part : {"q_norm", "k_norm"})
        add(prefix + "attention." + part + ".weight", {head});
    linears(prefix + "attention.", {{"o", d}}, q);
    norm(prefix + "mlp_norm");
    if (shape_.activation == ActivationKind::kSwiGlu) {
      linears(prefix + "mlp.", {{"gate", ff}, {"up", ff}}, d);
    } else {
      linears(prefix + "mlp.", {{"up", ff}}, d);
    }
    linears(prefix + "mlp.", {{"down", d}}, ff);
  }

  void sending_end(std::uint32_t layer) {
    const std::string prefix = boundary_prefix(layer);
    const std::int64_t d = shape_.d_model;
    add(prefix + "norm.weight", {d});
    if (shape_.bias) add(prefix + "norm.bias", {d});
    if (shape_.boundary == BoundaryKind::kBottleneck) linears(prefix, {{"down", width_}}, d);
  }
  void receiving_end(std::uint32_t layer) {
    linears(boundary_prefix(layer), {{"up", shape_.d_model}}, width_);
  }

  void head(bool own_weight) {
    norm("final_norm");
    if (own_weight) add("head.weight", {shape_.vocab, shape_.d_model});
  }

 private:
  static std::string boundary_prefix(std::uint32_t layer) {
    return "boundary." + std::to_string(layer) + ".";
  }

  void norm(const std::string& name) {
    add(name + ".weight", {shape_.d_model});
    if (shape_.norm == NormKind::kLayerNorm && shape_.bias) add(name + ".bias", {shape_.d_model});
  }

  void linears(const std::string& prefix,
               std::initializer_list<std::pair<const char*, std::int64_t>> outputs,
               std::int64_t inputs) {
    for (const auto& [name, width] : outputs) add(prefix + name + ".weight", {width, inputs});
    if (!shape_.bias) return;
    for (const auto& [name, width] : outputs) add(prefix + name + ".bias", {width});
  }

  void add(std::string name, std::vector<std::int64_t> shape) {
    const auto elements = static_cast<std::uint64_t>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
    const bool decay = shape.size() > 1;
    layout_.slots.push_back({std::move(name), std::move(shape), layout_.elements, elements, decay});
    layout_.elements =
        round_up(layout_.elements + elements, kBufferAlignment / size_bytes(layout_.dtype));
  }

  const ModelSection& shape_;
  std::int64_t sequence_;
  std::int64_t width_;  // of what travels
  ParameterLayout& layout_;
};

constexpr std::uint32_t kBytesAndEnd = 257;  // end of document

}  // namespace

Result<ModelSpec> resolve_model(const RunConfig& config, std::uint32_t data_vocab,
                                std::optional<std::uint32_t> separator) {
  ModelSpec spec{.shape = config.model,
                 .sequence = config.batch.sequence,
                 .seed = config.run.seed,
                 .mask_documents = config.data.mask_documents};
  if (spec.mask_documents) spec.separator = separator.value_or(0);
  ModelSection& shape = spec.shape;
  SWARMLINE_TRY(require_range("model.layers", shape.layers, kLayersMax));
  SWARMLINE_TRY(require_range("model.d_model", shape.d_model, kWidthMax));
  SWARMLINE_TRY(require_range("batch.sequence", spec.sequence, kSequenceMax));
  SWARMLINE_TRY(require_range("model.share_layers", shape.share_layers, shape.layers));
  SWARMLINE_TRY(
      require_multiple("model.layers", shape.layers, "model.share_layers", shape.share_layers));
  if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
  SWARMLINE_TRY(check_heads(shape));
  if (shape.d_ff == 0) {
    const std::uint64_t d = shape.d_model;
    const bool gated = shape.activation == ActivationKind::kSwiGlu;
    shape.d_ff = static_cast<std::uint32_t>(gated ? round_up((8 * d + 2) / 3, 64) : 4 * d);
  }
  SWARMLINE_TRY(require_range("model.d_ff", shape.d_ff, 4 * kWidthMax));
  SWARMLINE_TRY(resolve_vocab(shape, data_vocab));
  SWARMLINE_TRY(check_numbers(shape));
  SWARMLINE_TRY(
      require_range("letters of model.window_pattern", shape.window_pattern.size(), kLayersMax));
  SWARMLINE_TRY(check_boundary(shape));
  SWARMLINE_TRY(check_compute(shape));
  return spec;
}

Result<ModelSpec> resolve_model_of_config(const RunConfig& config) {
  if (config.model.vocab == 0 && config.data.kind != DataKind::kBytes)
    return fail(
        ErrorCode::kUserMistake,
        "model.vocab: found 0, expected the data's number of tokens: without the data it is "
        "not known");
  return resolve_model(config, kBytesAndEnd);
}

StageSpec whole_model(const ModelSpec& spec, std::span<const StageSpec> cut) {
  StageSpec whole{
      .stage = StageId{0}, .stages = 1, .first_layer = 0, .last_layer = spec.shape.layers};
  if (!spec.has_boundary()) return whole;
  for (const StageSpec& stage : cut) {
    if (!stage.has_embedding()) whole.inner_boundaries.push_back(stage.first_layer);
  }
  return whole;
}

ParameterLayout make_layout(const ModelSpec& spec, const StageSpec& stage) {
  const ModelSection& shape = spec.shape;
  SWARMLINE_CHECK(stage.stage.value < stage.stages);
  SWARMLINE_CHECK(stage.first_layer <= stage.last_layer && stage.last_layer <= shape.layers);
  SWARMLINE_CHECK_MSG(
      stage.first_layer % shape.share_layers == 0 && stage.last_layer % shape.share_layers == 0,
      "a stage is cut inside layers that share parameters");
  ParameterLayout layout{.dtype = shape.dtype};
  LayoutBuilder builder(spec, layout);
  const bool shared = shape.tied_embeddings && stage.stages > 1;
  const bool ends = spec.has_boundary();
  SWARMLINE_CHECK(ends || stage.inner_boundaries.empty());
  SWARMLINE_CHECK_MSG(
      !ends || stage.first_layer < stage.last_layer || stage.has_embedding() || stage.has_head(),
      "two boundaries at one layer");
  const auto inner = [&](std::uint32_t layer) {
    if (std::ranges::find(stage.inner_boundaries, layer) == stage.inner_boundaries.end()) return;
    builder.sending_end(layer);
    builder.receiving_end(layer);
  };
  if (stage.has_embedding()) {
    builder.embedding(/*tokens=*/!shared);
  } else if (ends) {
    builder.receiving_end(stage.first_layer);
  }
  for (std::uint32_t layer = stage.first_layer; layer < stage.last_layer;
       layer += shape.share_layers) {
    inner(layer);
    builder.block(layer / shape.share_layers);
  }
  inner(stage.last_layer);
  if (stage.has_head()) {
    builder.head(/*own_weight=*/!shape.tied_embeddings);
  } else if (ends) {
    builder.sending_end(stage.last_layer);
  }
  layout.tied_offset = layout.elements;
  if (shared && (stage.has_embedding() || stage.has_head())) builder.token_embedding();
  return layout;
}

}  // namespace swarmline
