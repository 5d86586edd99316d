// The layers of one stage over a parameter arena: what is computed, without whose turn it is.
//   Shapes:    tokens and targets (N) int32; hidden (N, d_model) with N = rows * sequence, or, with
//              a KeyValueCache, N <= what it has room for, of one sequence; what travels at a
//              learned boundary (N, hidden_width). Hidden states and what travels are of the spec's
//              stream_dtype().
//   Ownership: views of the arenas given; they and this object outlive every graph it makes.
//   Errors:    libtorch's exceptions.
//   Source:    GPT-2 (Radford et al. 2019) and Llama (Touvron et al. 2023) blocks, pre-norm; the
//              norms of queries and keys of Qwen3 (2025).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/libtorch.h"
#include "engine/model/model_spec.h"
#include "engine/model/ops.h"

namespace swarmline {

struct Arenas {
  at::Tensor values;   // flat, the layout's dtype
  at::Tensor compute;  // flat, what matrix products read; may be `values`
};

// `values` is on the device that computes. Matrix products read a bf16 copy of them where the
// model's precision says so; whoever writes the values copies them there, too.
Arenas arenas_over(const ModelSpec& spec, const at::Tensor& values);

// Keys and values of one sequence that grows: what its layers have of the tokens so far. Made by
// StageNetwork::make_cache(); outside of any graph.
struct KeyValueCache {
  std::vector<at::Tensor> keys;  // by layer: (1, kv_heads, sequence, head width)
  std::vector<at::Tensor> values;
  std::int64_t length = 0;  // tokens
};

class StageNetwork {
 public:
  StageNetwork(const ModelSpec& spec, const StageSpec& stage, const ParameterLayout& layout,
               const Arenas& arenas);
  // The same layers over other arenas, with that one's products: what is computed is named by its
  // parameters alone.
  StageNetwork(const StageNetwork& like, const ParameterLayout& layout, const Arenas& arenas);

  // The arenas were written: what was made of them is made anew when needed.
  void parameters_changed();

  KeyValueCache make_cache() const;
  // Whole model: the hidden states of the next tokens of a sequence, which the cache then has, too.
  at::Tensor go_on(const at::Tensor& tokens, KeyValueCache& cache);

  // Token and position embedding, outside of any graph.
  at::Tensor embed(const at::Tensor& tokens) const;
  // Adds the gradient of embed()'s result to the sink.
  void embed_backward(const at::Tensor& tokens, const at::Tensor& gradient);

  // From what the stage receives (or embeds) to what it sends (or feeds the head): learned
  // boundaries, embedding dropout and the blocks; `key` names the dropout masks, none: no dropout.
  // `documents`: attention stays within them; null: within sequences.
  at::Tensor blocks(at::Tensor hidden, std::optional<PhiloxKey> key,
                    const DocumentMasks* documents = nullptr);
  // Of document_spans() of that microbatch's targets.
  DocumentMasks masks_of(const std::vector<DocumentSpan>& spans) const;
  // Final norm and head: (N, vocab), float32 or wider.
  at::Tensor logits(const at::Tensor& hidden);
  // cross_entropy_sum() of the head's product.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& targets);

  GradientSink& sink() { return sink_; }

 private:
  at::Tensor logits_as_computed(const at::Tensor& hidden);
  struct Block {
    NormWeights attention_norm;
    LinearWeights qkv;                 // one product, if the slots leave no gap
    std::vector<LinearWeights> q_k_v;  // else three
    NormWeights q_norm;                // undefined without qk_norm
    NormWeights k_norm;
    LinearWeights o;
    NormWeights mlp_norm;
    LinearWeights up;                    // of SwiGLU: gate and up, as one
    std::vector<LinearWeights> gate_up;  // else two
    LinearWeights down;
  };

  // The two ends of a learned boundary; a stage may have one of them.
  struct Boundary {
    NormWeights norm;
    LinearWeights down;  // undefined: maxout
    LinearWeights up;
  };

  void bind(const ParameterLayout& layout, const Arenas& arenas);
  // What x is beside whole sequences. At most one of them.
  struct Way {
    KeyValueCache* cache = nullptr;            // of one sequence, which x goes on with
    const DocumentMasks* documents = nullptr;  // several in a sequence
  };
  at::Tensor attention(const Block& block, std::uint32_t layer, const at::Tensor& x,
                       const Way& way);
  // Queries, keys and values of x (rows, heads, tokens, width), the first two normed and rotated.
  std::vector<at::Tensor> queries_keys_values(const Block& block, const at::Tensor& x,
                                              std::int64_t first, std::int64_t tokens);
  at::Tensor run_blocks(at::Tensor hidden, std::optional<PhiloxKey> key, const Way& way);
  // How the layers' products are computed; head and boundaries stay native.
  void set_compute(LinearWeights& weights, bool of_layer);
  at::Tensor mlp(const Block& block, const at::Tensor& x);
  at::Tensor sending_end(std::uint32_t layer, const at::Tensor& hidden);
  at::Tensor receiving_end(std::uint32_t layer, const at::Tensor& hidden);
  at::Tensor products(const at::Tensor& x, const LinearWeights& fused,
                      const std::vector<LinearWeights>& parts);
  void make_rotations(at::Device device);

  const ModelSpec spec_;
  const StageSpec stage_;
  const at::ScalarType stream_type_;         // of hidden states
  const at::TensorOptions compute_options_;  // of queries, keys and values
  std::shared_ptr<LinearBackend> backend_;
  std::vector<std::shared_ptr<ScaledWeight>> scaled_;  // compute = "fp8"
  GradientSink sink_;
  std::vector<Block>
      blocks_;  // one per share_layers layers; graphs point into it, so it never grows
  std::map<std::uint32_t, Boundary> boundaries_;  // by the layer behind
  LinearWeights tokens_;                          // also the head's, when tied
  Weight positions_;
  NormWeights final_norm_;
  LinearWeights head_;
  at::Tensor cosines_;  // (sequence, 1, head width / 2)
  at::Tensor sines_;
};

}  // namespace swarmline
