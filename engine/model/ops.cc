#include "engine/model/ops.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/model/cublaslt_backend.h"

namespace swarmline {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

template <typename T>
void add_rows_in_order(const at::Tensor& target, const at::Tensor& tokens,
                       const at::Tensor& gradient, double scale) {
  const std::int64_t width = gradient.size(1);
  const auto* const from = static_cast<const T*>(gradient.const_data_ptr());
  const auto* const rows = static_cast<const std::int32_t*>(tokens.const_data_ptr());
  auto* const to = target.data_ptr<T>();
  const T factor = static_cast<T>(scale);
  for (std::int64_t n = 0; n < gradient.size(0); ++n) {
    T* const row = to + rows[n] * width;
    for (std::int64_t i = 0; i < width; ++i) row[i] += factor * from[n * width + i];
  }
}

at::Tensor product(const at::Tensor& x, const LinearWeights& weights) {
  const at::Tensor& w = weights.weight.compute;
  if (!weights.scaled) return weights.backend->product(x, w, weights.bias.compute);
  ScaledRows& rows = weights.scaled->forward;
  if (!rows.defined()) rows = scaled_rows(weights.weight.value, RowFormat::kE4M3);
  return weights.backend->scaled_product(scaled_rows(x, RowFormat::kE4M3), rows,
                                         weights.bias.compute, x.scalar_type());
}

at::Tensor input_gradient(const at::Tensor& g, const LinearWeights& weights) {
  if (!weights.scaled) return weights.backend->input_gradient(g, weights.weight.compute);
  ScaledRows& rows = weights.scaled->transposed;
  if (!rows.defined()) rows = scaled_rows(weights.weight.value.t(), RowFormat::kE4M3);
  return weights.backend->scaled_product(scaled_rows(g, RowFormat::kE5M2), rows, {},
                                         g.scalar_type());
}

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input,
                            const LinearWeights* weights, GradientSink* sink) {
    const at::Tensor x = input.to(weights->weight.compute.scalar_type());
    ctx->save_for_backward({x});
    ctx->saved_data["weights"] = reinterpret_cast<std::int64_t>(weights);
    ctx->saved_data["sink"] = reinterpret_cast<std::int64_t>(sink);
    ctx->saved_data["input_type"] = static_cast<std::int64_t>(input.scalar_type());
    return product(x, *weights);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto* const weights =
        reinterpret_cast<const LinearWeights*>(ctx->saved_data["weights"].toInt());
    auto* const sink = reinterpret_cast<GradientSink*>(ctx->saved_data["sink"].toInt());
    const auto input_type = static_cast<at::ScalarType>(ctx->saved_data["input_type"].toInt());
    const at::Tensor g = gradients[0].to(weights->weight.compute.scalar_type()).contiguous();
    if (sink->is_open()) sink->add_linear(*weights, g, ctx->get_saved_variables()[0]);
    return {input_gradient(g, *weights).to(input_type), {}, {}};
  }
};

// Both layers' backward in one function, since GELU's fuses with the second layer's product.
struct GeluMlpFunction : Function<GeluMlpFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const LinearWeights* up,
                            const LinearWeights* down, GradientSink* sink) {
    const at::Tensor x = input.to(up->weight.compute.scalar_type());
    at::Tensor inner;
    const at::Tensor active =
        up->backend->gelu_product(x, up->weight.compute, up->bias.compute, inner);
    ctx->save_for_backward({x, inner, active});
    ctx->saved_data["up"] = reinterpret_cast<std::int64_t>(up);
    ctx->saved_data["down"] = reinterpret_cast<std::int64_t>(down);
    ctx->saved_data["sink"] = reinterpret_cast<std::int64_t>(sink);
    ctx->saved_data["input_type"] = static_cast<std::int64_t>(input.scalar_type());
    return product(active, *down);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto* const up = reinterpret_cast<const LinearWeights*>(ctx->saved_data["up"].toInt());
    const auto* const down =
        reinterpret_cast<const LinearWeights*>(ctx->saved_data["down"].toInt());
    auto* const sink = reinterpret_cast<GradientSink*>(ctx->saved_data["sink"].toInt());
    const auto input_type = static_cast<at::ScalarType>(ctx->saved_data["input_type"].toInt());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor g = gradients[0].to(down->weight.compute.scalar_type()).contiguous();
    const bool open = sink->is_open();
    if (open) sink->add_linear(*down, g, saved[2]);
    at::Tensor sums;
    const at::Tensor inner_gradient = down->backend->gelu_input_gradient(
        g, down->weight.compute, saved[1], open && up->bias.defined() ? &sums : nullptr);
    if (open) {
      sink->add_linear({up->weight, {}, up->backend}, inner_gradient, saved[0]);
      if (up->bias.defined()) sink->add(up->bias, sums);
    }
    return {input_gradient(inner_gradient, *up).to(input_type), {}, {}, {}};
  }
};

std::optional<at::Tensor> optional_value(const Weight& weight) {
  return weight.defined() ? std::optional<at::Tensor>(weight.value) : std::nullopt;
}

struct LayerNormFunction : Function<LayerNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const NormWeights* weights,
                            GradientSink* sink) {
    const at::Tensor& weight = weights->weight.value;
    auto [y, mean, rstd] =
        at::native_layer_norm(x.to(weight.scalar_type()), x.sizes().slice(1), weight,
                              optional_value(weights->bias), weights->eps);
    ctx->save_for_backward({x, mean, rstd});
    ctx->saved_data["weights"] = reinterpret_cast<std::int64_t>(weights);
    ctx->saved_data["sink"] = reinterpret_cast<std::int64_t>(sink);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto* const weights =
        reinterpret_cast<const NormWeights*>(ctx->saved_data["weights"].toInt());
    auto* const sink = reinterpret_cast<GradientSink*>(ctx->saved_data["sink"].toInt());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = weights->weight.value;
    const bool open = sink->is_open();
    auto [dx, dw, db] = at::native_layer_norm_backward(
        gradients[0].contiguous(), x.to(weight.scalar_type()), x.sizes().slice(1), saved[1],
        saved[2], weight, optional_value(weights->bias),
        {true, open, open && weights->bias.defined()});
    if (open) sink->add(weights->weight, dw);
    if (open && weights->bias.defined()) sink->add(weights->bias, db);
    return {dx.to(x.scalar_type()), {}, {}};
  }
};

// y = x rstd w (+ b), rstd = (mean(x^2) + eps)^(-1/2). Source: Zhang and Sennrich, NeurIPS 2019.
struct RmsNormFunction : Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const NormWeights* weights,
                            GradientSink* sink) {
    const at::Tensor wide = x.to(weights->weight.value.scalar_type());
    const at::Tensor rstd =
        at::rsqrt_(at::mean(wide * wide, 1, /*keepdim=*/true).add_(weights->eps));
    ctx->save_for_backward({x, rstd});
    ctx->saved_data["weights"] = reinterpret_cast<std::int64_t>(weights);
    ctx->saved_data["sink"] = reinterpret_cast<std::int64_t>(sink);
    return (wide * rstd).mul_(weights->weight.value);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto* const weights =
        reinterpret_cast<const NormWeights*>(ctx->saved_data["weights"].toInt());
    auto* const sink = reinterpret_cast<GradientSink*>(ctx->saved_data["sink"].toInt());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& g = gradients[0];
    const at::Tensor normal = saved[0].to(saved[1].scalar_type()) * saved[1];
    if (sink->is_open()) sink->add(weights->weight, (g * normal).sum(0));
    at::Tensor dx = g * weights->weight.value;
    const at::Tensor along = at::mean(dx * normal, 1, /*keepdim=*/true);
    dx.addcmul_(normal, along, -1).mul_(saved[1]);
    return {dx.to(saved[0].scalar_type()), {}, {}};
  }
};

// On a device, in one pass each way; fp64 is libtorch's.
bool has_own_swiglu(const at::Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

struct SwiGluFunction : Function<SwiGluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    if (has_own_swiglu(x)) return swiglu_on_device(x);
    const std::int64_t width = x.size(1) / 2;
    return at::silu(x.narrow(1, 0, width)).mul_(x.narrow(1, width, width));
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    if (has_own_swiglu(x)) return {swiglu_gradient_on_device(x, gradients[0])};
    const std::int64_t width = x.size(1) / 2;
    const at::Tensor gate = x.narrow(1, 0, width);
    const at::Tensor& g = gradients[0];
    at::Tensor dx = at::empty_like(x);
    at::Tensor d_gate = dx.narrow(1, 0, width);
    at::Tensor d_up = dx.narrow(1, width, width);
    at::mul_out(d_up, g, at::silu(gate));
    d_gate.copy_(at::silu_backward(g * x.narrow(1, width, width), gate));
    return {dx};
  }
};

struct MaxoutFunction : Function<MaxoutFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, std::int64_t factor) {
    const at::Tensor groups = x.view({x.size(0), x.size(1) / factor, factor});
    at::Tensor largest = groups.select(2, 0);
    at::Tensor place = at::zeros(largest.sizes(), x.options().dtype(at::kByte));
    for (std::int64_t i = 1; i < factor; ++i) {
      const at::Tensor candidate = groups.select(2, i);
      place.masked_fill_(candidate.gt(largest), i);
      largest = at::maximum(largest, candidate);
    }
    ctx->save_for_backward({place});
    ctx->saved_data["factor"] = factor;
    return largest;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const at::Tensor place = ctx->get_saved_variables()[0];
    const std::int64_t factor = ctx->saved_data["factor"].toInt();
    const at::Tensor& g = gradients[0];
    at::Tensor dx = at::empty({g.size(0), g.size(1), factor}, g.options());
    for (std::int64_t i = 0; i < factor; ++i) {
      dx.select(2, i).copy_(g * place.eq(i));
    }
    return {dx.view({g.size(0), g.size(1) * factor}), {}};
  }
};

// The mask is its own transpose: backward applies it to the gradient.
at::Tensor masked(const at::Tensor& x, const DropoutMask& mask) {
  const at::Tensor in = x.contiguous();
  if (!in.is_cpu()) return dropout_on_device(in, mask);
  if (in.scalar_type() != at::kDouble && in.scalar_type() != at::kFloat) {
    return masked(in.to(at::kFloat), mask).to(in.scalar_type());
  }
  at::Tensor out = at::empty_like(in);
  AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "dropout", [&] {
    const auto* const from = static_cast<const scalar_t*>(in.const_data_ptr());
    auto* const to = out.data_ptr<scalar_t>();
    constexpr auto kGrain = static_cast<std::int64_t>(kDropoutGrain);
    const std::int64_t grains = (in.numel() + kGrain - 1) / kGrain;
    at::parallel_for(0, grains, 64, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = begin * kGrain;
      const std::int64_t count = std::min(end * kGrain, in.numel()) - first;
      apply_dropout(mask, static_cast<std::size_t>(first), static_cast<std::size_t>(count),
                    from + first, to + first);
    });
  });
  return out;
}

struct DropoutFunction : Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const DropoutMask& mask) {
    ctx->saved_data["key"] =
        static_cast<std::int64_t>(std::uint64_t{mask.key[1]} << 32 | mask.key[0]);
    ctx->saved_data["layer"] = static_cast<std::int64_t>(mask.layer);
    ctx->saved_data["site"] = static_cast<std::int64_t>(mask.site);
    ctx->saved_data["probability"] = mask.probability;
    return masked(x, mask);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto key = static_cast<std::uint64_t>(ctx->saved_data["key"].toInt());
    const DropoutMask mask{
        .key = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)},
        .layer = static_cast<std::uint32_t>(ctx->saved_data["layer"].toInt()),
        .site = static_cast<DropoutSite>(ctx->saved_data["site"].toInt()),
        .probability = ctx->saved_data["probability"].toDouble()};
    return {masked(gradients[0], mask), {}};
  }
};

// Written with out= forms: x is a slice of a wider tensor, and halves of the result are filled in
// place.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines,
                   double direction) {
  const std::int64_t half = x.size(3) / 2;
  const at::Tensor a = x.narrow(3, 0, half);
  const at::Tensor b = x.narrow(3, half, half);
  at::Tensor out = at::empty(x.sizes(), x.options());
  at::Tensor out_a = out.narrow(3, 0, half);
  at::Tensor out_b = out.narrow(3, half, half);
  at::mul_out(out_a, a, cosines).addcmul_(b, sines, -direction);
  at::mul_out(out_b, b, cosines).addcmul_(a, sines, direction);
  return out;
}

struct RotateFunction : Function<RotateFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cosines,
                            const at::Tensor& sines) {
    ctx->save_for_backward({cosines, sines});
    return rotated(x, cosines, sines, 1);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], -1), {}, {}};
  }
};

struct CrossEntropyFunction : Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const at::Tensor& targets) {
    const at::Tensor log_probabilities = at::log_softmax(logits, 1);
    const at::Tensor counted = targets.ge(0).unsqueeze(1);
    const at::Tensor columns = targets.clamp_min(0).to(at::kLong).unsqueeze(1);
    ctx->save_for_backward({log_probabilities, counted, columns});
    const at::Tensor picked = log_probabilities.gather(1, columns).to(at::kDouble);
    return at::where(counted, picked, at::zeros({}, picked.options())).sum().neg();
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    at::Tensor d = at::exp(saved[0]);
    const at::Tensor& columns = saved[2];
    d.scatter_add_(1, columns, at::full(columns.sizes(), -1, d.options()));
    d.mul_((gradients[0] * saved[1]).to(d.scalar_type()));
    return {d, {}};
  }
};

// On a CUDA device, of logits as the head's product gave them.
struct DeviceCrossEntropyFunction : Function<DeviceCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const at::Tensor& targets) {
    const at::Tensor rows = logits.contiguous();
    const auto [losses, log_sums] = cross_entropy_on_device(rows, targets);
    ctx->save_for_backward({rows, targets, log_sums});
    return losses.sum();
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    return {cross_entropy_gradient_on_device(saved[0], saved[1], saved[2], gradients[0]), {}};
  }
};

// Fewer queries at once would be many small products.
constexpr std::int64_t kQueryBlockMin = 128;

// (queries, keys): true where a query attends. The first query's own key has the number `first`.
at::Tensor window_mask(std::int64_t queries, std::int64_t keys, std::int64_t first,
                       std::int64_t window, at::Device device) {
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor own = at::arange(first, first + queries, options).unsqueeze(1);
  const at::Tensor distance = own - at::arange(keys, options);
  return distance.ge(0).logical_and_(distance.lt(window));
}

// 0 where a query attends, else -infinity.
at::Tensor document_mask(const std::vector<std::int64_t>& documents, std::int64_t window,
                         const at::TensorOptions& options) {
  const at::Tensor lengths = at::tensor(documents, at::kLong);
  const at::Tensor number = at::repeat_interleave(lengths);
  const at::Tensor same = number.unsqueeze(1).eq(number);
  const std::int64_t tokens = number.size(0);
  const at::Tensor seen = window_mask(tokens, tokens, 0, window > 0 ? window : tokens, at::kCPU);
  return at::zeros({tokens, tokens})
      .masked_fill_(same.logical_and(seen).logical_not_(), -std::numeric_limits<float>::infinity())
      .to(options);
}

}  // namespace

at::Tensor GradientSink::target(const Weight& weight) {
  has_added_ = true;
  return flat_.narrow(0, static_cast<std::int64_t>(weight.offset), weight.value.numel())
      .view(weight.value.sizes());
}

void GradientSink::add(const Weight& weight, const at::Tensor& gradient) {
  if (kept_ != nullptr)
    return kept_->push_back([weight, gradient](GradientSink& sink) { sink.add(weight, gradient); });
  target(weight).add_(gradient, scale_);
}

void GradientSink::add_linear(const LinearWeights& weights, const at::Tensor& g,
                              const at::Tensor& x) {
  if (kept_ != nullptr)
    return kept_->push_back(
        [weights, g, x](GradientSink& sink) { sink.add_linear(weights, g, x); });
  weights.backend->add_weight_gradient(target(weights.weight), g, x, scale_);
  if (weights.bias.defined()) add(weights.bias, g.sum(0));
}

void GradientSink::add_rows(const Weight& weight, const at::Tensor& tokens,
                            const at::Tensor& gradient) {
  SWARMLINE_CHECK_MSG(kept_ == nullptr, "a stage that embeds has no input gradient to hurry for");
  const at::Tensor sum = target(weight);
  if (!sum.is_cpu()) {
    // Sorts by tokens first; index_add_ would add in the order in which threads come.
    const at::Tensor scaled = gradient.to(sum.scalar_type()).mul(scale_);
    at::Tensor(sum).index_put_({tokens.to(at::kLong)}, scaled, /*accumulate=*/true);
    return;
  }
  const at::Tensor g = gradient.contiguous();
  AT_DISPATCH_FLOATING_TYPES(g.scalar_type(), "add_rows",
                             [&] { add_rows_in_order<scalar_t>(sum, tokens, g, scale_); });
}

at::Tensor linear(const at::Tensor& x, const LinearWeights& weights, GradientSink& sink) {
  return LinearFunction::apply(x, &weights, &sink);
}

at::Tensor gelu_mlp(const at::Tensor& x, const LinearWeights& up, const LinearWeights& down,
                    GradientSink& sink) {
  SWARMLINE_CHECK(!up.scaled && !down.scaled);
  return GeluMlpFunction::apply(x, &up, &down, &sink);
}

at::Tensor norm(const at::Tensor& x, const NormWeights& weights, GradientSink& sink) {
  return weights.rms ? RmsNormFunction::apply(x, &weights, &sink)
                     : LayerNormFunction::apply(x, &weights, &sink);
}

at::Tensor norm_of_heads(const at::Tensor& x, const NormWeights& weights, GradientSink& sink) {
  const at::Tensor wide = x.to(weights.weight.value.scalar_type());
  return norm(wide.reshape({-1, x.size(3)}), weights, sink).view(x.sizes()).to(x.scalar_type());
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            std::int64_t window) {
  const std::int64_t queries = q.size(2);
  const std::int64_t before = k.size(2) - queries;  // keys before the first query's own
  SWARMLINE_CHECK(before >= 0);
  const bool narrow = window > 0 && window < k.size(2);
  if (!narrow && (before == 0 || queries == 1)) {
    return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/std::nullopt, /*dropout_p=*/0,
                                            /*is_causal=*/before == 0);
  }
  const std::int64_t seen = narrow ? window : k.size(2);
  const std::int64_t block = std::min(queries, std::max(seen, kQueryBlockMin));
  std::vector<at::Tensor> parts;
  for (std::int64_t begin = 0; begin < queries; begin += block) {
    const std::int64_t end = std::min(queries, begin + block);
    const std::int64_t first = std::max<std::int64_t>(0, before + begin - seen + 1);
    const std::int64_t keys = before + end - first;
    const at::Tensor mask =
        window_mask(end - begin, keys, before + begin - first, seen, q.device());
    parts.push_back(at::scaled_dot_product_attention(
        q.narrow(2, begin, end - begin), k.narrow(2, first, keys), v.narrow(2, first, keys), mask));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 2);
}

DocumentMasks document_masks(const std::vector<DocumentSpan>& spans, std::int64_t window,
                             const at::TensorOptions& options) {
  DocumentMasks masks;
  for (const DocumentSpan& span : spans) {
    const bool alone = span.documents.size() == 1;
    const bool is_narrow = window > 0 && window < std::ranges::max(span.documents);
    masks.tokens.push_back(span.tokens);
    masks.causal.push_back(alone ? at::Tensor{} : document_mask(span.documents, 0, options));
    masks.windowed.push_back(alone || !is_narrow ? masks.causal.back()
                                                 : document_mask(span.documents, window, options));
  }
  return masks;
}

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const DocumentMasks& masks, std::int64_t window) {
  // Split at once, so that backward joins gradients once.
  const std::vector<at::Tensor> queries = q.split_with_sizes(masks.tokens, 2),
                                keys = k.split_with_sizes(masks.tokens, 2),
                                values = v.split_with_sizes(masks.tokens, 2);
  std::vector<at::Tensor> mixed;
  for (std::size_t i = 0; i < masks.tokens.size(); ++i) {
    const at::Tensor& mask = window > 0 ? masks.windowed[i] : masks.causal[i];
    mixed.push_back((mask.defined()
                         ? at::scaled_dot_product_attention(queries[i], keys[i], values[i], mask)
                         : causal_attention(queries[i], keys[i], values[i], window))
                        .transpose(1, 2));
  }
  return at::cat(mixed, 1).transpose(1, 2);
}

at::Tensor swiglu(const at::Tensor& x) {
  return SwiGluFunction::apply(x);
}

at::Tensor maxout(const at::Tensor& x, std::int64_t factor) {
  return MaxoutFunction::apply(x, factor);
}

at::Tensor dropout(const at::Tensor& x, const DropoutMask& mask) {
  return DropoutFunction::apply(x, mask);
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  return RotateFunction::apply(x, cosines, sines);
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  if (logits.is_cuda() && logits.scalar_type() != at::kDouble)
    return DeviceCrossEntropyFunction::apply(logits, targets);
  const at::ScalarType type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return CrossEntropyFunction::apply(logits.to(type), targets);
}

}  // namespace swarmline
