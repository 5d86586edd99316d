// The differentiable steps of a Transformer block. Autograd follows activations only: weights are
// no variables, and each step's backward adds its weight gradient straight into the flat
// accumulator that the GradientSink names at that moment. So an accumulator can change between
// attempts, weight gradients can be left out or scaled, and no gradient is written twice.
//   Shapes:    activations are (N, width) with N = rows * sequence, contiguous.
//   Ownership: graphs point at the weights and the sink, which outlive them.
//   Errors:    libtorch's exceptions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/model/documents.h"
#include "engine/model/dropout.h"
#include "engine/model/libtorch.h"
#include "engine/model/linear_backend.h"

namespace swarmline {

// One tensor of the parameter arena. `compute` is what matrix products read: `value` itself, or its
// bf16 copy.
struct Weight {
  at::Tensor value;
  at::Tensor compute;
  std::uint64_t offset = 0;  // elements
  bool defined() const { return value.defined(); }
};

// A weight (out, in) in 8-bit codes: by rows for forward, its transpose by rows for the input
// gradient. Made when first needed after a change of the parameters.
struct ScaledWeight {
  ScaledRows forward;
  ScaledRows transposed;
  void forget() { forward = transposed = {}; }
};

struct LinearWeights {
  Weight weight;  // (out, in)
  Weight bias;    // (out), or undefined
  LinearBackend* backend = &torch_linear_backend();
  // Set: products with x and with output gradients are of fp8 codes (row_codes.h), scaled by rows
  // of x, of the gradient and of either side of the weight: e4m3, but for the gradient's e5m2,
  // which reach far below its largest. The weight's gradient is native.
  std::shared_ptr<ScaledWeight> scaled = nullptr;
};

struct NormWeights {
  Weight weight;  // (d)
  Weight bias;    // (d), or undefined
  double eps = 0;
  bool rms = false;
};

class GradientSink {
 public:
  // What a sink was told while it kept, in order; each adds to the sink it is given.
  using Kept = std::vector<std::function<void(GradientSink&)>>;

  // Gradients times `scale` are added to `flat`, one element per element of the arena, until
  // closed.
  void open(at::Tensor flat, double scale) {
    flat_ = std::move(flat);
    scale_ = scale;
  }
  // Gradients are not added: what they are made of goes to `kept`, until closed.
  void keep(Kept& kept) { kept_ = &kept; }
  void close() {
    flat_.reset();
    kept_ = nullptr;
    has_added_ = false;
  }
  bool is_open() const { return flat_.defined() || kept_ != nullptr; }
  // Since open(), something may have been added.
  bool has_added() const { return has_added_; }

  void add(const Weight& weight, const at::Tensor& gradient);
  // Adds what output gradient `g` says of weight and bias of a linear layer fed with x.
  void add_linear(const LinearWeights& weights, const at::Tensor& g, const at::Tensor& x);
  // Adds row n of `gradient` to row tokens[n] of the weight, in order of n.
  void add_rows(const Weight& weight, const at::Tensor& tokens, const at::Tensor& gradient);

 private:
  at::Tensor target(const Weight& weight);

  at::Tensor flat_;
  double scale_ = 1;
  bool has_added_ = false;
  Kept* kept_ = nullptr;
};

// x W^T + b, in the dtype of `weight.compute`.
at::Tensor linear(const at::Tensor& x, const LinearWeights& weights, GradientSink& sink);
// linear(gelu(linear(x, up)), down) with the tanh form of GELU, fused where the backend can; native
// products only.
at::Tensor gelu_mlp(const at::Tensor& x, const LinearWeights& up, const LinearWeights& down,
                    GradientSink& sink);
// In the weight's dtype, whatever that of x, which its gradient has.
at::Tensor norm(const at::Tensor& x, const NormWeights& weights, GradientSink& sink);
// norm() of each head's vector, x (rows, sequence, heads, width), in the weight's dtype; the result
// has that of x.
at::Tensor norm_of_heads(const at::Tensor& x, const NormWeights& weights, GradientSink& sink);
// silu(gate) * up of x = [gate | up].
at::Tensor swiglu(const at::Tensor& x);
// (N, width) -> (N, width / factor): the largest of each `factor` neighbours; its gradient goes to
// the first one that is it. Source: Goodfellow et al., Maxout Networks, ICML 2013.
at::Tensor maxout(const at::Tensor& x, std::int64_t factor);
at::Tensor dropout(const at::Tensor& x, const DropoutMask& mask);
// Rotates pairs (i, i + half) of the last dimension of x (rows, sequence, heads, 2 half) by the
// angles whose cosines and sines are (sequence, 1, half). Source: Su et al., RoFormer; the
// half-split pairing of Llama in Hugging Face.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines);
// Softmax attention: q (rows, heads, queries, width), k and v (rows, heads, keys, width), keys >=
// queries: query i is at position keys - queries + i, and attends to the keys up to itself, with a
// `window` above 0 to so many. Of a long sequence with a window, blocks of queries are computed
// with the keys that any of them sees.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            std::int64_t window);

// A microbatch's spans as attention needs them: what is added to the scores of one that holds
// several documents, (tokens, tokens), 0 or -infinity.
struct DocumentMasks {
  std::vector<std::int64_t> tokens;  // of each span
  std::vector<at::Tensor> causal;    // undefined: the span is one document
  std::vector<at::Tensor> windowed;  // the same within the window, if there is one
};
// `options`: of queries; `window`: of the layers that have one, or 0.
DocumentMasks document_masks(const std::vector<DocumentSpan>& spans, std::int64_t window,
                             const at::TensorOptions& options);
// causal_attention() of each document by itself: q, k, v and the result (1, heads, tokens of all
// spans, width). `window`: the masks' or 0.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const DocumentMasks& masks, std::int64_t window);
// Cross-entropy in nats, summed over targets >= 0: (N, vocab) of any dtype, (N) int32 -> float64
// scalar.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace swarmline
