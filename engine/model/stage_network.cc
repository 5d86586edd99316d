#include "engine/model/stage_network.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace swarmline {
namespace {

// Finds slots of a layout as tensors.
class Binder {
 public:
  Binder(const ParameterLayout& layout, const Arenas& arenas) : layout_(layout), arenas_(arenas) {}

  // Undefined when the layout has no such slot.
  Weight find(const std::string& name) const {
    const ParameterSlot* const slot = slot_of(name);
    return slot == nullptr ? Weight{} : view(*slot, slot->shape);
  }
  LinearWeights linear(const std::string& prefix) const {
    return {find(prefix + ".weight"), find(prefix + ".bias")};
  }
  NormWeights norm(const std::string& prefix, const ModelSection& shape) const {
    return {find(prefix + ".weight"), find(prefix + ".bias"), shape.norm_eps,
            shape.norm == NormKind::kRmsNorm};
  }
  // Linears whose slots follow each other without a gap, as one; undefined when there is one.
  LinearWeights fused(const std::vector<std::string>& prefixes) const {
    const Weight weight = fused_slots(prefixes, ".weight");
    const bool has_bias = slot_of(prefixes.front() + ".bias") != nullptr;
    const Weight bias = has_bias ? fused_slots(prefixes, ".bias") : Weight{};
    if (!weight.defined() || bias.defined() != has_bias) return {};
    return {weight, bias};
  }

 private:
  const ParameterSlot* slot_of(std::string_view name) const {
    for (const ParameterSlot& slot : layout_.slots) {
      if (slot.name == name) return &slot;
    }
    return nullptr;
  }

  Weight fused_slots(const std::vector<std::string>& prefixes, const char* kind) const {
    const ParameterSlot* const first = slot_of(prefixes.front() + kind);
    SWARMLINE_CHECK(first != nullptr);
    std::uint64_t end = first->offset;
    std::vector<std::int64_t> shape = first->shape;
    shape[0] = 0;
    for (const std::string& prefix : prefixes) {
      const ParameterSlot* const slot = slot_of(prefix + kind);
      SWARMLINE_CHECK(slot != nullptr);
      if (slot->offset != end) return {};
      end += slot->elements;
      shape[0] += slot->shape[0];
    }
    return view(*first, shape);
  }

  Weight view(const ParameterSlot& slot, const std::vector<std::int64_t>& shape) const {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    const auto of = [&](const at::Tensor& flat) {
      return flat.narrow(0, static_cast<std::int64_t>(slot.offset), elements).view(shape);
    };
    return {of(arenas_.values), of(arenas_.compute), slot.offset};
  }

  const ParameterLayout& layout_;
  const Arenas& arenas_;
};

}  // namespace

// What autocast would do, decided once: matrix products in bf16, all else in fp32.
Arenas arenas_over(const ModelSpec& spec, const at::Tensor& values) {
  const bool narrow = spec.shape.precision == Precision::kBF16 ||
                      (spec.shape.precision == Precision::kAuto && !values.is_cpu());
  if (values.scalar_type() == at::kDouble || !narrow) return {values, values};
  return {values, at::empty(values.sizes(), values.options().dtype(at::kBFloat16))};
}

StageNetwork::StageNetwork(const ModelSpec& spec, const StageSpec& stage,
                           const ParameterLayout& layout, const Arenas& arenas)
    : spec_(spec),
      stage_(stage),
      stream_type_(spec.shape.stream == StreamKind::kBF16 ? at::kBFloat16
                                                          : arenas.values.scalar_type()),
      compute_options_(arenas.compute.options()),
      backend_(make_linear_backend(arenas.values.device())) {
  bind(layout, arenas);
  if (spec_.shape.positions == PositionKind::kRotary) make_rotations(arenas.values.device());
}

StageNetwork::StageNetwork(const StageNetwork& like, const ParameterLayout& layout,
                           const Arenas& arenas)
    : spec_(like.spec_),
      stage_(like.stage_),
      stream_type_(like.stream_type_),
      compute_options_(like.compute_options_),
      backend_(like.backend_),
      cosines_(like.cosines_),
      sines_(like.sines_) {
  bind(layout, arenas);
}

void StageNetwork::bind(const ParameterLayout& layout, const Arenas& arenas) {
  const ModelSection& shape = spec_.shape;
  const Binder binder(layout, arenas);
  tokens_ = {binder.find("embed.tokens.weight"), {}};
  positions_ = binder.find("embed.positions.weight");
  const std::uint32_t share = shape.share_layers;
  blocks_.reserve((stage_.last_layer - stage_.first_layer) / share);
  for (std::uint32_t n = stage_.first_layer / share; n < stage_.last_layer / share; ++n) {
    const std::string prefix = "layers." + std::to_string(n) + ".";
    const std::string attention = prefix + "attention.";
    const std::string mlp = prefix + "mlp.";
    Block block;
    block.attention_norm = binder.norm(prefix + "attention_norm", shape);
    block.qkv = binder.fused({attention + "q", attention + "k", attention + "v"});
    for (const char* part : {"q", "k", "v"}) block.q_k_v.push_back(binder.linear(attention + part));
    block.q_norm = {binder.find(attention + "q_norm.weight"), {}, shape.norm_eps, /*rms=*/true};
    block.k_norm = {binder.find(attention + "k_norm.weight"), {}, shape.norm_eps, /*rms=*/true};
    block.o = binder.linear(attention + "o");
    block.mlp_norm = binder.norm(prefix + "mlp_norm", shape);
    if (shape.activation == ActivationKind::kSwiGlu) {
      block.up = binder.fused({mlp + "gate", mlp + "up"});
      for (const char* part : {"gate", "up"}) block.gate_up.push_back(binder.linear(mlp + part));
    } else {
      block.up = binder.linear(mlp + "up");
    }
    block.down = binder.linear(mlp + "down");
    for (LinearWeights* weights : {&block.qkv, &block.o, &block.up, &block.down})
      set_compute(*weights, /*of_layer=*/true);
    for (std::vector<LinearWeights>* parts : {&block.q_k_v, &block.gate_up})
      for (LinearWeights& weights : *parts) set_compute(weights, /*of_layer=*/true);
    blocks_.push_back(std::move(block));
  }
  std::vector<std::uint32_t> ends = stage_.inner_boundaries;
  if (spec_.has_boundary() && !stage_.has_embedding()) ends.push_back(stage_.first_layer);
  if (spec_.has_boundary() && !stage_.has_head()) ends.push_back(stage_.last_layer);
  for (const std::uint32_t layer : ends) {
    const std::string prefix = "boundary." + std::to_string(layer) + ".";
    NormWeights norm = binder.norm(prefix + "norm", shape);
    norm.rms = false;
    Boundary& boundary = boundaries_[layer];
    boundary = {norm, binder.linear(prefix + "down"), binder.linear(prefix + "up")};
    set_compute(boundary.down, /*of_layer=*/false);
    set_compute(boundary.up, /*of_layer=*/false);
  }
  if (!stage_.has_head()) return;
  final_norm_ = binder.norm("final_norm", shape);
  head_ = shape.tied_embeddings ? tokens_ : LinearWeights{binder.find("head.weight"), {}};
  set_compute(head_, /*of_layer=*/false);
}

void StageNetwork::set_compute(LinearWeights& weights, bool of_layer) {
  if (!weights.weight.defined()) return;
  weights.backend = backend_.get();
  if (!of_layer || spec_.shape.compute != ComputeKind::kFp8) return;
  weights.scaled = scaled_.emplace_back(std::make_shared<ScaledWeight>());
}

void StageNetwork::parameters_changed() {
  for (const std::shared_ptr<ScaledWeight>& weight : scaled_) weight->forget();
}

void StageNetwork::make_rotations(at::Device device) {
  const auto half = static_cast<std::int64_t>(spec_.shape.head_width() / 2);
  const auto sequence = static_cast<std::int64_t>(spec_.sequence);
  at::Tensor angles = at::empty({sequence, 1, half}, at::kDouble);
  double* const out = angles.data_ptr<double>();
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(spec_.shape.rope_theta, -static_cast<double>(i) / static_cast<double>(half));
    for (std::int64_t t = 0; t < sequence; ++t) {
      out[t * half + i] = static_cast<double>(t) * frequency;
    }
  }
  const auto dtype = spec_.shape.dtype == DType::kF64 ? at::kDouble : at::kFloat;
  cosines_ = at::cos(angles).to(device, dtype);
  sines_ = at::sin(angles).to(device, dtype);
}

at::Tensor StageNetwork::embed(const at::Tensor& tokens) const {
  at::NoGradGuard no_graph;
  const std::int64_t width = spec_.shape.d_model;
  at::Tensor hidden = at::embedding(tokens_.weight.value, tokens);
  if (positions_.defined()) {
    hidden.view({-1, spec_.sequence, width}).add_(positions_.value);
  }
  return hidden.to(stream_type_);
}

void StageNetwork::embed_backward(const at::Tensor& tokens, const at::Tensor& gradient) {
  if (!sink_.is_open()) return;
  const at::Tensor wide = gradient.to(tokens_.weight.value.scalar_type());
  sink_.add_rows(tokens_.weight, tokens, wide);
  if (positions_.defined()) {
    sink_.add(positions_, wide.view({-1, spec_.sequence, spec_.shape.d_model}).sum(0));
  }
}

at::Tensor StageNetwork::products(const at::Tensor& x, const LinearWeights& fused,
                                  const std::vector<LinearWeights>& parts) {
  if (fused.weight.defined()) return linear(x, fused, sink_);
  std::vector<at::Tensor> results;
  for (const LinearWeights& part : parts) results.push_back(linear(x, part, sink_));
  return at::cat(results, 1);
}

std::vector<at::Tensor> StageNetwork::queries_keys_values(const Block& block, const at::Tensor& x,
                                                          std::int64_t first, std::int64_t tokens) {
  const std::int64_t heads = spec_.shape.heads;
  const std::int64_t kv_heads = spec_.shape.kv_heads;
  const std::int64_t width = spec_.shape.head_width();
  const at::Tensor qkv = products(x, block.qkv, block.q_k_v);
  auto parts = qkv.view({-1, tokens, heads + 2 * kv_heads, width})
                   .split_with_sizes({heads, kv_heads, kv_heads}, 2);
  const NormWeights* const norms[] = {&block.q_norm, &block.k_norm};
  for (int i : {0, 1}) {
    if (norms[i]->weight.defined()) parts[i] = norm_of_heads(parts[i], *norms[i], sink_);
    if (!cosines_.defined()) continue;
    parts[i] = rotate(parts[i], cosines_.narrow(0, first, tokens), sines_.narrow(0, first, tokens));
  }
  for (at::Tensor& part : parts) part = part.transpose(1, 2);
  return parts;
}

at::Tensor StageNetwork::attention(const Block& block, std::uint32_t layer, const at::Tensor& x,
                                   const Way& way) {
  KeyValueCache* const cache = way.cache;
  const std::int64_t heads = spec_.shape.heads;
  const std::int64_t kv_heads = spec_.shape.kv_heads;
  const std::int64_t window = spec_.shape.has_window(layer) ? spec_.shape.window : 0;
  const std::int64_t first = cache == nullptr ? 0 : cache->length;
  const std::int64_t tokens = cache == nullptr ? spec_.sequence : x.size(0);
  auto parts = queries_keys_values(block, x, first, tokens);
  if (cache != nullptr) {
    at::Tensor* const kept[] = {&cache->keys[layer], &cache->values[layer]};
    for (int i : {0, 1}) {
      kept[i]->narrow(2, first, tokens).copy_(parts[i + 1]);
      parts[i + 1] = kept[i]->narrow(2, 0, first + tokens);
    }
  }
  if (way.documents != nullptr) {
    for (at::Tensor& part : parts)  // without a copy: the rows follow each other
      part = part.transpose(1, 2).flatten(0, 1).unsqueeze(0).transpose(1, 2);
  }
  if (kv_heads != heads) {
    // Key head j serves query heads [j g, (j + 1) g).
    for (int i : {1, 2}) {
      parts[i] = parts[i].unsqueeze(2).expand({-1, -1, heads / kv_heads, -1, -1}).flatten(1, 2);
    }
  }
  const at::Tensor mixed =
      way.documents != nullptr
          ? document_attention(parts[0], parts[1], parts[2], *way.documents, window)
          : causal_attention(parts[0], parts[1], parts[2], window);
  return linear(mixed.transpose(1, 2).reshape({-1, heads * spec_.shape.head_width()}), block.o,
                sink_);
}

at::Tensor StageNetwork::mlp(const Block& block, const at::Tensor& x) {
  if (spec_.shape.activation == ActivationKind::kGeluTanh && !block.up.scaled) {
    return gelu_mlp(x, block.up, block.down, sink_);
  }
  const at::Tensor wide = products(x, block.up, block.gate_up);
  switch (spec_.shape.activation) {
    case ActivationKind::kGelu:
      return linear(at::gelu(wide), block.down, sink_);
    case ActivationKind::kGeluTanh:
      return linear(at::gelu(wide, "tanh"), block.down, sink_);
    case ActivationKind::kSwiGlu:
      return linear(swiglu(wide), block.down, sink_);
  }
  SWARMLINE_CHECK(false);
}

// What travels is in the dtype of hidden states.
at::Tensor StageNetwork::sending_end(std::uint32_t layer, const at::Tensor& hidden) {
  const Boundary& boundary = boundaries_.at(layer);
  const at::Tensor normal = norm(hidden, boundary.norm, sink_);
  if (!boundary.down.weight.defined()) {
    return maxout(normal, static_cast<std::int64_t>(spec_.shape.boundary_factor)).to(stream_type_);
  }
  return linear(normal, boundary.down, sink_).to(stream_type_);
}

at::Tensor StageNetwork::receiving_end(std::uint32_t layer, const at::Tensor& hidden) {
  return linear(hidden, boundaries_.at(layer).up, sink_).to(stream_type_);
}

at::Tensor StageNetwork::blocks(at::Tensor hidden, std::optional<PhiloxKey> key,
                                const DocumentMasks* documents) {
  return run_blocks(std::move(hidden), key, {.documents = documents});
}

DocumentMasks StageNetwork::masks_of(const std::vector<DocumentSpan>& spans) const {
  return document_masks(spans, spec_.shape.window, compute_options_);
}

KeyValueCache StageNetwork::make_cache() const {
  const ModelSection& shape = spec_.shape;
  KeyValueCache cache;
  const auto options = tokens_.weight.compute.options();
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::vector<at::Tensor>* kept : {&cache.keys, &cache.values})
      kept->push_back(at::empty({1, shape.kv_heads, spec_.sequence, shape.head_width()}, options));
  }
  return cache;
}

at::Tensor StageNetwork::go_on(const at::Tensor& tokens, KeyValueCache& cache) {
  SWARMLINE_CHECK(stage_.has_embedding() && stage_.has_head());
  SWARMLINE_CHECK(cache.length + tokens.size(0) <= spec_.sequence);
  at::NoGradGuard no_graph;
  at::Tensor hidden = at::embedding(tokens_.weight.value, tokens);
  if (positions_.defined()) hidden.add_(positions_.value.narrow(0, cache.length, tokens.size(0)));
  hidden = run_blocks(hidden.to(stream_type_), std::nullopt, {.cache = &cache});
  cache.length += tokens.size(0);
  return hidden;
}

at::Tensor StageNetwork::run_blocks(at::Tensor hidden, std::optional<PhiloxKey> key,
                                    const Way& way) {
  const auto dropped = [&](const at::Tensor& x, std::uint32_t layer, DropoutSite site) {
    if (!key || spec_.shape.dropout == 0) return x;
    return dropout(x, {*key, layer, site, spec_.shape.dropout});
  };
  // Rounded once, of the sum.
  const auto added = [&](const at::Tensor& x, const at::Tensor& made) {
    return (x + made).to(stream_type_);
  };
  const auto inside = [&](const at::Tensor& x, std::uint32_t layer) {
    const auto& inner = stage_.inner_boundaries;
    if (std::ranges::find(inner, layer) == inner.end()) return x;
    return receiving_end(layer, sending_end(layer, x));
  };
  if (stage_.has_embedding()) {
    hidden = dropped(hidden, 0, DropoutSite::kEmbedding);
  } else if (spec_.has_boundary()) {
    hidden = receiving_end(stage_.first_layer, hidden);
  }
  for (std::uint32_t layer = stage_.first_layer; layer < stage_.last_layer; ++layer) {
    hidden = inside(hidden, layer);
    const Block& block = blocks_[(layer - stage_.first_layer) / spec_.shape.share_layers];
    const at::Tensor mixed =
        attention(block, layer, norm(hidden, block.attention_norm, sink_), way);
    hidden = added(hidden, dropped(mixed, layer, DropoutSite::kAttention));
    const at::Tensor made = mlp(block, norm(hidden, block.mlp_norm, sink_));
    hidden = added(hidden, dropped(made, layer, DropoutSite::kMlp));
  }
  hidden = inside(hidden, stage_.last_layer);
  if (spec_.has_boundary() && !stage_.has_head()) return sending_end(stage_.last_layer, hidden);
  return hidden;
}

at::Tensor StageNetwork::loss(const at::Tensor& hidden, const at::Tensor& targets) {
  return cross_entropy_sum(logits_as_computed(hidden), targets);
}

at::Tensor StageNetwork::logits(const at::Tensor& hidden) {
  return logits_as_computed(hidden).to(spec_.shape.dtype == DType::kF64 ? at::kDouble : at::kFloat);
}

at::Tensor StageNetwork::logits_as_computed(const at::Tensor& hidden) {
  return linear(norm(hidden, final_norm_, sink_), head_, sink_);
}

}  // namespace swarmline
