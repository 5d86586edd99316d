// What the model is and how it is cut, without torch: shapes, names, costs and the flat layout of a
// stage's parameters.
//   Ownership: plain values. Thread: immutable once made.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/config/run_config.h"

namespace swarmline {

// ModelSection with every 0-default resolved (kv_heads, d_ff, vocab) plus the sequence length.
struct ModelSpec {
  ModelSection shape;
  std::uint32_t sequence = 0;
  std::uint64_t seed = 0;  // the run's; initialisation and dropout are keyed by it
  // Training and evaluation attend within documents (documents.h), each of which begins with
  // `separator`. A text that is read or generated is one document.
  bool mask_documents = false;
  std::uint32_t separator = 0;
  bool has_boundary() const { return shape.boundary != BoundaryKind::kNone; }
  // Width of what travels between stages.
  std::uint32_t hidden_width() const {
    return has_boundary() ? shape.d_model / shape.boundary_factor : shape.d_model;
  }
};
// kUserMistake with the key in the sentence, e.g. d_model not divisible by heads, layers not
// divisible by share_layers. `separator`: the data's; who computes nothing needs none.
Result<ModelSpec> resolve_model(const RunConfig& config, std::uint32_t data_vocab,
                                std::optional<std::uint32_t> separator = std::nullopt);
// Where the data is not at hand: bytes have 257 tokens, and of other data the config has to say it.
Result<ModelSpec> resolve_model_of_config(const RunConfig& config);

// Layers [first_layer, last_layer) of the model; stage 0 embeds, the last stage has the final norm,
// the head and the loss.
struct StageSpec {
  StageId stage;
  std::uint32_t stages = 1;
  std::uint32_t first_layer = 0;
  std::uint32_t last_layer = 0;
  // Layers inside the stage, rising, that begin behind a learned boundary: where a run in one
  // process stands for several stages. The stage's own ends are boundaries without being named.
  std::vector<std::uint32_t> inner_boundaries;
  bool has_embedding() const { return stage.value == 0; }
  bool has_head() const { return stage.value + 1U == stages; }
};
// The model in one piece, with the boundaries (if it has any) where `cut` has them.
StageSpec whole_model(const ModelSpec& spec, std::span<const StageSpec> cut);

// Forward + backward FLOPs of one sequence, for cutting the model into stages of equal cost. What
// is bound by memory counts as the matrix work that takes as long.
struct ModelCosts {
  std::vector<double> layer_flops;  // one entry per layer
  double embedding_flops = 0;
  double head_flops = 0;  // final norm, head and loss
  // What a learned boundary adds to the stage before it and to the one behind it.
  double sending_flops = 0;
  double receiving_flops = 0;
};
ModelCosts model_costs(const ModelSpec& spec);
// Forward + backward FLOPs of one layer's matrix products for one sequence; of attention only the
// pairs of tokens that a causal mask leaves, or that blocks of a sliding window compute.
double layer_matrix_flops(const ModelSpec& spec, std::uint32_t layer = 0);

// What a checkpoint holds beside the parameters is called like a parameter, behind one of these.
inline constexpr std::string_view kOptimizerPrefix = "optimizer.", kPreviousPrefix = "previous.";

struct ParameterSlot {
  std::string name;  // of the whole model, layer numbers global
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // elements into the stage's arena; slots start on 64-byte boundaries
  std::uint64_t elements = 0;
  bool decay = false;  // weight decay applies: not to biases and norms
};

// All parameters of a stage in one flat arena; gradients and optimizer moments have the same
// layout. The gaps between slots are zero in all of them. A tied embedding held by two stages is
// the last slot on both, [tied_offset, elements). Names, N = layer / share_layers:
//   embed.tokens.weight (vocab, d_model), embed.positions.weight (sequence, d_model),
//   layers.N.{attention_norm,mlp_norm}.{weight,bias} (d_model),
//   layers.N.attention.{q,k,v,o}.{weight,bias}, layers.N.mlp.{gate,up,down}.{weight,bias}: (out,
//   in), with qk_norm layers.N.attention.{q,k}_norm.weight (head_width), final_norm.{weight,bias},
//   head.weight (vocab, d_model) unless tied. At a learned boundary
//   before layer L, w = hidden_width(), the stage before it has boundary.L.norm.{weight,bias}
//   (d_model) and, of a bottleneck, boundary.L.down.{weight,bias} (w, d_model); the stage behind it
//   has boundary.L.up.{weight,bias} (d_model, w).
struct ParameterLayout {
  DType dtype = DType::kF32;
  std::vector<ParameterSlot> slots;
  std::uint64_t elements = 0;
  std::uint64_t tied_offset = 0;  // == elements when nothing is shared with another stage
  std::uint64_t bytes() const { return elements * size_bytes(dtype); }
  bool has_tied() const { return tied_offset < elements; }
};
ParameterLayout make_layout(const ModelSpec& spec, const StageSpec& stage);

// Seeded initialisation: every element a pure function of (seed, tensor name, element), so it does
// not depend on the number of stages. `arena` has layout.bytes() bytes, 64-byte aligned.
void initialise_parameters(const ModelSpec& spec, const ParameterLayout& layout, std::byte* arena);

// Bytes of activations that one microbatch of `rows` sequences keeps until its backward. During
// backward a recomputing stage needs what the other kind keeps, for one microbatch.
std::uint64_t retained_bytes(const ModelSpec& spec, const StageSpec& stage, std::uint32_t rows,
                             bool recompute);

}  // namespace swarmline
