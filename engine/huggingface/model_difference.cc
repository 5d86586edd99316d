#include "engine/huggingface/model_difference.h"

#include <fmt/format.h>

namespace swarmline {
namespace {

const char* name_of(NormKind norm) {
  return norm == NormKind::kRmsNorm ? "\"rmsnorm\"" : "\"layernorm\"";
}
const char* name_of(ActivationKind activation) {
  if (activation == ActivationKind::kSwiGlu) return "\"swiglu\"";
  return activation == ActivationKind::kGelu ? "\"gelu\"" : "\"gelu_tanh\"";
}
const char* name_of(PositionKind positions) {
  return positions == PositionKind::kRotary ? "\"rotary\"" : "\"learned\"";
}
const char* name_of(BoundaryKind boundary) {
  if (boundary == BoundaryKind::kNone) return "\"none\"";
  return boundary == BoundaryKind::kMaxout ? "\"maxout\"" : "\"bottleneck\"";
}

// A letter a layer: whether it has the window.
std::string window_letters(const ModelSection& shape) {
  std::string letters;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer)
    letters += shape.has_window(layer) ? 'S' : 'L';
  return letters;
}

}  // namespace

std::vector<std::string> model_differences(const ModelSpec& wanted, const ModelSpec& there) {
  std::vector<std::string> found;
  const auto compare = [&](const char* key, const auto& here, const auto& other) {
    if (here != other)
      found.push_back(fmt::format("model.{} is {}, and there {}", key, here, other));
  };
  const auto compare_names = [&](const char* key, auto here, auto other) {
    if (here != other) compare(key, std::string(name_of(here)), std::string(name_of(other)));
  };
  const ModelSection& a = wanted.shape;
  const ModelSection& b = there.shape;
  const auto kv_heads = [](const ModelSection& s) { return s.kv_heads > 0 ? s.kv_heads : s.heads; };
  compare("layers", a.layers, b.layers);
  compare("d_model", a.d_model, b.d_model);
  compare("heads", a.heads, b.heads);
  compare("kv_heads", kv_heads(a), kv_heads(b));
  compare("head_dim", a.head_width(), b.head_width());
  compare("d_ff", a.d_ff, b.d_ff);
  compare("vocab", a.vocab, b.vocab);
  compare_names("norm", a.norm, b.norm);
  compare_names("activation", a.activation, b.activation);
  compare_names("positions", a.positions, b.positions);
  compare("qk_norm", a.qk_norm, b.qk_norm);
  compare("bias", a.bias, b.bias);
  compare("tied_embeddings", a.tied_embeddings, b.tied_embeddings);
  compare("norm_eps", a.norm_eps, b.norm_eps);
  compare("share_layers", a.share_layers, b.share_layers);
  compare_names("boundary", a.boundary, b.boundary);
  if (a.boundary != BoundaryKind::kNone && a.boundary == b.boundary)
    compare("boundary_factor", a.boundary_factor, b.boundary_factor);
  if (a.positions == PositionKind::kRotary && b.positions == PositionKind::kRotary)
    compare("rope_theta", a.rope_theta, b.rope_theta);
  if (a.layers == b.layers && window_letters(a) != window_letters(b))
    compare("window_pattern over the layers", window_letters(a), window_letters(b));
  if (window_letters(a).find('S') != std::string::npos &&
      window_letters(b).find('S') != std::string::npos)
    compare("window", a.window, b.window);
  if (a.positions == PositionKind::kLearned && b.positions == PositionKind::kLearned &&
      wanted.sequence > there.sequence)
    found.push_back(fmt::format("batch.sequence is {}, and there positions reach to {}",
                                wanted.sequence, there.sequence));
  return found;
}

}  // namespace swarmline
