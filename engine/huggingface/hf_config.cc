#include "engine/huggingface/hf_config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/store/json_writer.h"
#include "engine/store/strict_json.h"

namespace swarmline {
namespace {

namespace json = boost::json;

constexpr const char* kVersion = "5.23.0";  // of transformers: whose config this is

std::string_view torch_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "float64";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    default:
      return "float32";
  }
}

std::uint32_t kv_heads_of(const ModelSection& shape) {
  return shape.kv_heads > 0 ? shape.kv_heads : shape.heads;
}

void write_gpt2(JsonWriter& out, const ModelSpec& model) {
  const ModelSection& shape = model.shape;
  out.member("vocab_size", shape.vocab).member("n_positions", model.sequence);
  out.member("n_embd", shape.d_model).member("n_layer", shape.layers);
  out.member("n_head", shape.heads).member("n_inner", shape.d_ff);
  out.member("activation_function",
             shape.activation == ActivationKind::kGeluTanh ? "gelu_new" : "gelu");
  out.member("layer_norm_epsilon", shape.norm_eps);
  // Ours drops what attention gives, not its weights.
  out.member("resid_pdrop", shape.dropout).member("embd_pdrop", shape.dropout);
  out.member("attn_pdrop", 0.0).member("initializer_range", shape.init_std);
  out.member("scale_attn_weights", true).member("scale_attn_by_inverse_layer_idx", false);
}

void write_windows(JsonWriter& out, HfArchitecture architecture, const ModelSection& shape) {
  if (architecture == HfArchitecture::kMistral) out.member("sliding_window", shape.window);
  if (architecture != HfArchitecture::kQwen3) return;
  const bool any = shape.window > 0 && shape.window_pattern.find('S') != std::string::npos;
  out.member("use_sliding_window", any);
  if (any) {
    out.member("sliding_window", shape.window);
  } else {
    out.key("sliding_window").null();
  }
  out.member("max_window_layers", shape.layers).key("layer_types").begin_array();
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer)
    out.value(shape.has_window(layer) ? "sliding_attention" : "full_attention");
  out.end_array();
}

void write_llama(JsonWriter& out, HfArchitecture architecture, const ModelSpec& model) {
  const ModelSection& shape = model.shape;
  out.member("vocab_size", shape.vocab).member("max_position_embeddings", model.sequence);
  out.member("hidden_size", shape.d_model).member("intermediate_size", shape.d_ff);
  out.member("num_hidden_layers", shape.layers).member("num_attention_heads", shape.heads);
  out.member("num_key_value_heads", kv_heads_of(shape)).member("head_dim", shape.head_width());
  out.member("hidden_act", "silu").member("rms_norm_eps", shape.norm_eps);
  out.member("attention_dropout", 0.0).member("initializer_range", shape.init_std);
  out.member("rope_theta", shape.rope_theta);
  out.key("rope_parameters").begin_object().member("rope_type", "default");
  out.member("rope_theta", shape.rope_theta).end_object();
  if (architecture != HfArchitecture::kMistral) out.member("attention_bias", shape.bias);
  if (architecture == HfArchitecture::kLlama) out.member("mlp_bias", shape.bias);
  write_windows(out, architecture, shape);
}

// Members of config.json; the first thing wrong sticks.
class Reader {
 public:
  Reader(const json::object& object, const std::string& path) : object_(object), path_(path) {}

  const json::value* find(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  std::uint32_t number(std::string_view key, std::optional<std::uint32_t> otherwise = {}) {
    const json::value* value = find(key);
    if (value == nullptr && otherwise) return *otherwise;
    const std::int64_t* found = value == nullptr ? nullptr : value->if_int64();
    if (found == nullptr || *found < 0 || *found > INT32_MAX) {
      refuse(key, value == nullptr ? "is not there" : "is no whole number");
      return 1;
    }
    return static_cast<std::uint32_t>(*found);
  }
  double real(std::string_view key, double otherwise) {
    const json::value* value = find(key);
    if (value == nullptr) return otherwise;
    const double found = value->is_number() ? value->to_number<double>() : NAN;
    if (!std::isfinite(found)) refuse(key, "is no number");
    return std::isfinite(found) ? found : otherwise;
  }
  bool flag(std::string_view key, bool otherwise) {
    const json::value* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_bool()) refuse(key, "is neither true nor false");
    return value->is_bool() ? value->get_bool() : otherwise;
  }
  std::string text(std::string_view key, std::string otherwise = "") {
    const json::value* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) refuse(key, "is no text");
    return value->is_string() ? std::string(value->get_string()) : otherwise;
  }
  void refuse(std::string_view key, std::string_view what, ErrorCode code = ErrorCode::kCorrupt) {
    if (!error_) error_ = Error{code, fmt::format("{}: \"{}\" {}", path_, key, what)};
  }
  void refuse_setting(std::string_view key, std::string_view what) {
    refuse(key, what, ErrorCode::kIncompatible);
  }
  const json::object& object() const { return object_; }
  const std::string& path() const { return path_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  const json::object& object_;
  const std::string& path_;
  std::optional<Error> error_;
};

DType read_dtype(Reader& in) {
  const std::string name = in.text("dtype", in.text("torch_dtype", "float32"));
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    if (name == torch_name(dtype)) return dtype;
  return DType::kF32;  // tensors say it for themselves
}

void read_gpt2(Reader& in, ModelSpec& model) {
  ModelSection& shape = model.shape;
  shape.norm = NormKind::kLayerNorm;
  shape.positions = PositionKind::kLearned;
  shape.bias = true;
  shape.vocab = in.number("vocab_size", 50257);
  model.sequence = in.number("n_positions", 1024);
  shape.d_model = in.number("n_embd", 768);
  shape.layers = in.number("n_layer", 12);
  shape.heads = in.number("n_head", 12);
  shape.d_ff = in.number("n_inner", 4 * shape.d_model);
  shape.norm_eps = in.real("layer_norm_epsilon", 1e-5);
  shape.dropout = in.real("resid_pdrop", 0.1);
  shape.init_std = in.real("initializer_range", 0.02);
  shape.tied_embeddings = in.flag("tie_word_embeddings", true);
  const std::string activation = in.text("activation_function", "gelu_new");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") {
    shape.activation = ActivationKind::kGeluTanh;
  } else if (activation == "gelu") {
    shape.activation = ActivationKind::kGelu;
  } else {
    in.refuse_setting("activation_function",
                      fmt::format("is \"{}\", which is not supported", activation));
  }
  if (!in.flag("scale_attn_weights", true)) in.refuse_setting("scale_attn_weights", "is false");
  if (in.flag("scale_attn_by_inverse_layer_idx", false))
    in.refuse_setting("scale_attn_by_inverse_layer_idx", "is true");
  if (in.flag("add_cross_attention", false)) in.refuse_setting("add_cross_attention", "is true");
}

void read_rope(Reader& in, ModelSection& shape) {
  shape.positions = PositionKind::kRotary;
  shape.rope_theta = in.real("rope_theta", 10000);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json::value* value = in.find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) return in.refuse(key, "is no JSON object");
    Reader rope(value->get_object(), in.path());
    shape.rope_theta = rope.real("rope_theta", shape.rope_theta);
    const std::string kind = rope.text("rope_type", rope.text("type", "default"));
    if (kind != "default")
      in.refuse_setting(key, fmt::format("has the rope_type \"{}\", and only \"default\" is "
                                         "supported",
                                         kind));
    if (rope.real("partial_rotary_factor", 1) != 1)
      in.refuse_setting(key, "turns a part of each head only, which is not supported");
    if (rope.error()) in.refuse(key, "is not understood");
  }
}

// "S" where all layers have the window, else a letter for each.
void read_windows(Reader& in, HfArchitecture architecture, ModelSection& shape) {
  const std::uint32_t window = in.number("sliding_window", 0);
  if (architecture == HfArchitecture::kLlama || window == 0) return;
  if (architecture == HfArchitecture::kQwen3 && !in.flag("use_sliding_window", false)) return;
  std::string pattern(shape.layers, 'S');
  if (architecture == HfArchitecture::kQwen3) {
    const std::uint32_t full = in.number("max_window_layers", 28);
    for (std::uint32_t layer = 0; layer < shape.layers && layer < full; ++layer)
      pattern[layer] = 'L';
    if (const json::value* types = in.find("layer_types")) {
      const json::array* list = types->if_array();
      if (list == nullptr || list->size() != shape.layers)
        return in.refuse("layer_types", "is no list of one type a layer");
      for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
        const json::value& type = (*list)[layer];
        const bool sliding = type == json::value("sliding_attention");
        if (!sliding && type != json::value("full_attention"))
          return in.refuse_setting("layer_types",
                                   "has a type that is neither full nor sliding attention");
        pattern[layer] = sliding ? 'S' : 'L';
      }
    }
  }
  if (pattern.find('S') == std::string::npos) return;
  shape.window = window;
  shape.window_pattern = pattern.find('L') == std::string::npos ? "S" : pattern;
}

void read_llama(Reader& in, HfArchitecture architecture, ModelSpec& model) {
  ModelSection& shape = model.shape;
  shape.norm = NormKind::kRmsNorm;
  shape.activation = ActivationKind::kSwiGlu;
  shape.qk_norm = architecture == HfArchitecture::kQwen3;
  shape.vocab = in.number("vocab_size");
  model.sequence = in.number("max_position_embeddings");
  shape.d_model = in.number("hidden_size");
  shape.layers = in.number("num_hidden_layers");
  shape.heads = std::max(1U, in.number("num_attention_heads"));
  shape.kv_heads = in.number("num_key_value_heads", shape.heads);
  shape.d_ff = in.number("intermediate_size");
  const std::uint32_t even = shape.d_model / shape.heads;
  const std::uint32_t head_dim =
      in.number("head_dim", architecture == HfArchitecture::kQwen3 ? 128 : even);
  shape.head_dim = head_dim == even && shape.d_model % shape.heads == 0 ? 0 : head_dim;
  shape.norm_eps = in.real("rms_norm_eps", 1e-6);
  shape.init_std = in.real("initializer_range", 0.02);
  shape.tied_embeddings = in.flag("tie_word_embeddings", false);
  shape.bias = in.flag("attention_bias", false);
  const bool mlp_bias = in.flag("mlp_bias", false);
  if (architecture == HfArchitecture::kLlama ? shape.bias != mlp_bias : shape.bias)
    in.refuse_setting("attention_bias",
                      "is not what mlp_bias is: a model here has biases in both or in neither");
  const std::string activation = in.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    in.refuse_setting("hidden_act",
                      fmt::format("is \"{}\", and only \"silu\" is supported", activation));
  read_rope(in, shape);
  read_windows(in, architecture, shape);
}

std::optional<std::uint32_t> read_end_token(Reader& in, std::uint32_t vocab) {
  const json::value* value = in.find("eos_token_id");
  if (value != nullptr && value->is_array() && !value->get_array().empty())
    value = &value->get_array().front();
  const std::int64_t* number = value == nullptr ? nullptr : value->if_int64();
  if (number == nullptr || *number < 0 || *number >= std::int64_t{vocab}) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

}  // namespace

std::string to_config_json(const HfConfig& config) {
  const ModelSection& shape = config.model.shape;
  JsonWriter out(2);
  out.begin_object().key("architectures").begin_array();
  out.value(class_name(config.architecture)).end_array();
  out.member("model_type", model_type(config.architecture));
  if (config.architecture == HfArchitecture::kGpt2) {
    write_gpt2(out, config.model);
  } else {
    write_llama(out, config.architecture, config.model);
  }
  out.member("tie_word_embeddings", shape.tied_embeddings);
  out.key("bos_token_id").value(config.end_token);
  out.key("eos_token_id").value(config.end_token);
  out.member("use_cache", true).member("dtype", torch_name(config.dtype));
  out.member("torch_dtype", torch_name(config.dtype));
  out.member("transformers_version", kVersion).end_object();
  return out.take() + "\n";
}

std::string to_generation_config_json(const HfConfig& config) {
  JsonWriter out(2);
  out.begin_object().key("bos_token_id").value(config.end_token);
  out.key("eos_token_id").value(config.end_token);
  out.key("pad_token_id").value(config.end_token);
  out.member("transformers_version", kVersion).end_object();
  return out.take() + "\n";
}

Result<HfConfig> parse_hf_config(std::string_view text, const std::string& path) {
  auto root = parse_strict_json(text, path);
  if (!root) return std::unexpected(std::move(root).error());
  if (!root->is_object()) return fail(ErrorCode::kCorrupt, path + " is no JSON object");
  Reader in(root->get_object(), path);
  HfConfig config;
  const std::string type = in.text("model_type");
  bool known = false;
  for (const HfArchitecture architecture : {HfArchitecture::kGpt2, HfArchitecture::kLlama,
                                            HfArchitecture::kMistral, HfArchitecture::kQwen3}) {
    if (type != model_type(architecture)) continue;
    config.architecture = architecture;
    known = true;
  }
  if (!known)
    in.refuse_setting("model_type", fmt::format("is \"{}\", and gpt2, llama, mistral and qwen3 are "
                                                "supported",
                                                type));
  if (known && config.architecture == HfArchitecture::kGpt2) {
    read_gpt2(in, config.model);
  } else if (known) {
    read_llama(in, config.architecture, config.model);
  }
  config.dtype = read_dtype(in);
  config.end_token = read_end_token(in, config.model.shape.vocab);
  if (in.error()) return std::unexpected(*in.error());
  // Of the same bounds and multiples as a run's model.
  RunConfig run;
  run.model = config.model.shape;
  run.batch.sequence = config.model.sequence;
  auto resolved = resolve_model(run, config.model.shape.vocab);
  if (!resolved)
    return fail(ErrorCode::kIncompatible, fmt::format("{}: {}", path, resolved.error().what));
  config.model = std::move(*resolved);
  return config;
}

}  // namespace swarmline
