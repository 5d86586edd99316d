// The layers of one stage over a parameter arena: what is computed, without whose turn it is.
//   Shapes:    tokens and targets (N) int32; hidden (N, d_model) with N = rows * sequence;
//              what travels at a learned boundary (N, hidden_width).
//   Ownership: views of the arenas given; they and this object outlive every graph it makes.
//   Errors:    libtorch's exceptions.
//   Source:    GPT-2 (Radford et al. 2019) and Llama (Touvron et al. 2023) blocks, pre-norm.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "engine/model/model_spec.h"
#include "engine/model/ops.h"

namespace swarmline {

struct Arenas {
  at::Tensor values;   // flat, the layout's dtype
  at::Tensor compute;  // flat, what matrix products read; may be `values`
};

class StageNetwork {
 public:
  StageNetwork(const ModelSpec& spec, const StageSpec& stage, const ParameterLayout& layout,
               const Arenas& arenas);

  // The arenas were written: what was made of them is made anew when needed.
  void parameters_changed();

  // Token and position embedding, outside of any graph.
  at::Tensor embed(const at::Tensor& tokens) const;
  // Adds the gradient of embed()'s result to the sink.
  void embed_backward(const at::Tensor& tokens, const at::Tensor& gradient);

  // From what the stage receives (or embeds) to what it sends (or feeds the head): learned
  // boundaries, embedding dropout and the blocks; `key` names the dropout masks, none: no dropout.
  at::Tensor blocks(at::Tensor hidden, std::optional<PhiloxKey> key);
  // Final norm and head: (N, vocab), float32 or wider.
  at::Tensor logits(const at::Tensor& hidden);

  GradientSink& sink() { return sink_; }

 private:
  struct Block {
    NormWeights attention_norm;
    LinearWeights qkv;                 // one product, if the slots leave no gap
    std::vector<LinearWeights> q_k_v;  // else three
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
  at::Tensor attention(const Block& block, const at::Tensor& x);
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
  std::unique_ptr<LinearBackend> backend_;
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
