#include "engine/huggingface/architecture.h"

#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace swarmline {
namespace {

std::unexpected<Error> no_fit(std::string_view key, std::string_view found, std::string_view why) {
  return fail(ErrorCode::kUserMistake, fmt::format("model.{} = {}: {}", key, found, why));
}

bool has_any_window(const ModelSection& shape) {
  return shape.window > 0 && shape.window_pattern.find('S') != std::string::npos;
}

Result<HfArchitecture> gpt2_or_why_not(const ModelSection& shape) {
  if (shape.positions != PositionKind::kLearned)
    return no_fit(
        "positions", "\"rotary\"",
        "transformers has no architecture with norm = \"layernorm\" and rotary positions "
        "in this form; of LayerNorm models only those with learned positions (GPT-2) fit");
  if (shape.activation == ActivationKind::kSwiGlu)
    return no_fit("activation", "\"swiglu\"",
                  "GPT-2, the architecture with norm = \"layernorm\", has gelu or gelu_tanh");
  if (shape.kv_heads != 0 && shape.kv_heads != shape.heads)
    return no_fit("kv_heads", std::to_string(shape.kv_heads),
                  fmt::format("GPT-2 has as many as heads ({})", shape.heads));
  if (shape.head_width() * shape.heads != shape.d_model)
    return no_fit("head_dim", std::to_string(shape.head_dim),
                  fmt::format("GPT-2's heads are d_model / heads = {} / {} wide", shape.d_model,
                              shape.heads));
  if (shape.qk_norm) return no_fit("qk_norm", "true", "GPT-2 has no norms of queries and keys");
  if (has_any_window(shape))
    return no_fit("window", std::to_string(shape.window), "GPT-2 has no sliding window");
  return HfArchitecture::kGpt2;
}

Result<HfArchitecture> llama_like_or_why_not(const ModelSection& shape) {
  if (shape.positions != PositionKind::kRotary)
    return no_fit(
        "positions", "\"learned\"",
        "Llama, Mistral and Qwen3, the architectures with norm = \"rmsnorm\", have rotary "
        "ones");
  if (shape.activation != ActivationKind::kSwiGlu)
    return no_fit(
        "activation", shape.activation == ActivationKind::kGelu ? "\"gelu\"" : "\"gelu_tanh\"",
        "Llama, Mistral and Qwen3, the architectures with norm = \"rmsnorm\", have swiglu");
  if (!shape.qk_norm && !has_any_window(shape)) return HfArchitecture::kLlama;
  if (shape.bias)
    return no_fit("bias", "true",
                  fmt::format("{} have no biases in their MLP; only Llama, without qk_norm and "
                              "window, may have one everywhere",
                              shape.qk_norm ? "Qwen3 models" : "Mistral models"));
  if (shape.qk_norm) return HfArchitecture::kQwen3;
  if (shape.window_pattern.find('L') != std::string::npos)
    return no_fit("window_pattern", fmt::format("\"{}\"", shape.window_pattern),
                  "Mistral, the architecture with a window and without qk_norm, has it in every "
                  "layer; with qk_norm = true it could be Qwen3");
  return HfArchitecture::kMistral;
}

// Builds the table; `from` is the number of the block whose parameters a layer uses.
class Table {
 public:
  Table(const ModelSpec& spec) : spec_(spec), shape_(spec.shape), d_(spec.shape.d_model) {}

  std::vector<HfTensor> gpt2() {
    add("transformer.wte.weight", {{"embed.tokens.weight", shape_.vocab}}, d_);
    add("transformer.wpe.weight", {{"embed.positions.weight", spec_.sequence}}, d_);
    for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) gpt2_layer(layer);
    norm("transformer.ln_f", "final_norm");
    if (!shape_.tied_embeddings) add("lm_head.weight", {{"head.weight", shape_.vocab}}, d_);
    return std::move(tensors_);
  }

  std::vector<HfTensor> llama() {
    add("model.embed_tokens.weight", {{"embed.tokens.weight", shape_.vocab}}, d_);
    for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) llama_layer(layer);
    add("model.norm.weight", {{"final_norm.weight", d_}}, 0);
    if (!shape_.tied_embeddings) add("lm_head.weight", {{"head.weight", shape_.vocab}}, d_);
    return std::move(tensors_);
  }

 private:
  std::string block(std::uint32_t layer) const {
    return fmt::format("layers.{}.", layer / shape_.share_layers);
  }

  // `inputs` 0: a vector.
  void add(std::string name, std::vector<HfPart> parts, std::int64_t inputs,
           bool transposed = false) {
    std::int64_t outputs = 0;
    for (const HfPart& part : parts) outputs += part.outputs;
    std::vector<std::int64_t> shape = {outputs};
    if (inputs > 0 && transposed) shape = {inputs, outputs};
    if (inputs > 0 && !transposed) shape = {outputs, inputs};
    tensors_.push_back({std::move(name), std::move(shape), transposed, std::move(parts)});
  }

  // GPT-2 has biases: of a model without, zeros.
  HfPart bias(const std::string& ours, std::int64_t outputs) const {
    return {shape_.bias ? ours + ".bias" : "", outputs};
  }
  void norm(const std::string& theirs, const std::string& ours) {
    add(theirs + ".weight", {{ours + ".weight", d_}}, 0);
    add(theirs + ".bias", {bias(ours, d_)}, 0);
  }
  void conv(const std::string& theirs,
            std::initializer_list<std::pair<std::string, std::int64_t>> ours, std::int64_t inputs) {
    std::vector<HfPart> weights, biases;
    for (const auto& [name, outputs] : ours) {
      weights.push_back({name + ".weight", outputs});
      biases.push_back(bias(name, outputs));
    }
    add(theirs + ".weight", std::move(weights), inputs, /*transposed=*/true);
    add(theirs + ".bias", std::move(biases), 0);
  }
  void gpt2_layer(std::uint32_t layer) {
    const std::string theirs = fmt::format("transformer.h.{}.", layer), ours = block(layer);
    norm(theirs + "ln_1", ours + "attention_norm");
    conv(theirs + "attn.c_attn",
         {{ours + "attention.q", d_}, {ours + "attention.k", d_}, {ours + "attention.v", d_}}, d_);
    conv(theirs + "attn.c_proj", {{ours + "attention.o", d_}}, d_);
    norm(theirs + "ln_2", ours + "mlp_norm");
    conv(theirs + "mlp.c_fc", {{ours + "mlp.up", shape_.d_ff}}, d_);
    conv(theirs + "mlp.c_proj", {{ours + "mlp.down", d_}}, shape_.d_ff);
  }

  void linear(const std::string& theirs, const std::string& ours, std::int64_t outputs,
              std::int64_t inputs) {
    add(theirs + ".weight", {{ours + ".weight", outputs}}, inputs);
    if (shape_.bias) add(theirs + ".bias", {{ours + ".bias", outputs}}, 0);
  }
  void llama_layer(std::uint32_t layer) {
    const std::string theirs = fmt::format("model.layers.{}.", layer), ours = block(layer);
    const std::int64_t head = shape_.head_width();
    const std::int64_t q = head * shape_.heads;
    const std::int64_t kv = head * (shape_.kv_heads > 0 ? shape_.kv_heads : shape_.heads);
    add(theirs + "input_layernorm.weight", {{ours + "attention_norm.weight", d_}}, 0);
    linear(theirs + "self_attn.q_proj", ours + "attention.q", q, d_);
    linear(theirs + "self_attn.k_proj", ours + "attention.k", kv, d_);
    linear(theirs + "self_attn.v_proj", ours + "attention.v", kv, d_);
    linear(theirs + "self_attn.o_proj", ours + "attention.o", d_, q);
    if (shape_.qk_norm)
      for (const char* part : {"q_norm", "k_norm"})
        add(theirs + "self_attn." + part + ".weight",
            {{ours + "attention." + part + ".weight", head}}, 0);
    add(theirs + "post_attention_layernorm.weight", {{ours + "mlp_norm.weight", d_}}, 0);
    linear(theirs + "mlp.gate_proj", ours + "mlp.gate", shape_.d_ff, d_);
    linear(theirs + "mlp.up_proj", ours + "mlp.up", shape_.d_ff, d_);
    linear(theirs + "mlp.down_proj", ours + "mlp.down", d_, shape_.d_ff);
  }

  const ModelSpec& spec_;
  const ModelSection& shape_;
  const std::int64_t d_;
  std::vector<HfTensor> tensors_;
};

}  // namespace

std::string_view class_name(HfArchitecture architecture) {
  switch (architecture) {
    case HfArchitecture::kGpt2:
      return "GPT2LMHeadModel";
    case HfArchitecture::kLlama:
      return "LlamaForCausalLM";
    case HfArchitecture::kMistral:
      return "MistralForCausalLM";
    case HfArchitecture::kQwen3:
      return "Qwen3ForCausalLM";
  }
  SWARMLINE_CHECK(false);
}

std::string_view model_type(HfArchitecture architecture) {
  switch (architecture) {
    case HfArchitecture::kGpt2:
      return "gpt2";
    case HfArchitecture::kLlama:
      return "llama";
    case HfArchitecture::kMistral:
      return "mistral";
    case HfArchitecture::kQwen3:
      return "qwen3";
  }
  SWARMLINE_CHECK(false);
}

Result<HfArchitecture> architecture_of(const ModelSpec& spec) {
  if (spec.has_boundary())
    return no_fit("boundary",
                  spec.shape.boundary == BoundaryKind::kMaxout ? "\"maxout\"" : "\"bottleneck\"",
                  "no architecture of transformers has learned compression between its layers");
  return spec.shape.norm == NormKind::kLayerNorm ? gpt2_or_why_not(spec.shape)
                                                 : llama_like_or_why_not(spec.shape);
}

std::vector<HfTensor> hf_tensors(HfArchitecture architecture, const ModelSpec& spec) {
  Table table(spec);
  return architecture == HfArchitecture::kGpt2 ? table.gpt2() : table.llama();
}

}  // namespace swarmline
