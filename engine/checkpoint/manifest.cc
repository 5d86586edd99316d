#include "engine/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/store/json_writer.h"
#include "engine/store/strict_json.h"

namespace swarmline {

namespace {

namespace json = boost::json;

template <typename T>
struct Name {
  T value;
  std::string_view name;
};
constexpr std::array kNorms{Name{NormKind::kLayerNorm, "layernorm"},
                            Name{NormKind::kRmsNorm, "rmsnorm"}};
constexpr std::array kActivations{Name{ActivationKind::kGelu, "gelu"},
                                  Name{ActivationKind::kGeluTanh, "gelu_tanh"},
                                  Name{ActivationKind::kSwiGlu, "swiglu"}};
constexpr std::array kPositions{Name{PositionKind::kLearned, "learned"},
                                Name{PositionKind::kRotary, "rotary"}};
constexpr std::array kBoundaries{Name{BoundaryKind::kNone, "none"},
                                 Name{BoundaryKind::kBottleneck, "bottleneck"},
                                 Name{BoundaryKind::kMaxout, "maxout"}};
constexpr std::array kComputes{Name{ComputeKind::kNative, "native"},
                               Name{ComputeKind::kFp8, "fp8"}};
constexpr std::array kPrecisions{Name{Precision::kAuto, "auto"}, Name{Precision::kF32, "fp32"},
                                 Name{Precision::kBF16, "bf16"}};
constexpr std::array kStreams{Name{StreamKind::kDType, "dtype"}, Name{StreamKind::kBF16, "bf16"}};
constexpr std::array kDTypes{Name{DType::kF32, "fp32"}, Name{DType::kF64, "fp64"}};

template <typename T, std::size_t N>
std::string_view name_of(const std::array<Name<T>, N>& names, T value) {
  return std::ranges::find(names, value, &Name<T>::value)->name;
}

// Takes typed members out of one JSON object; the first thing wrong sticks, later takes do nothing.
class Fields {
 public:
  Fields(const json::value& value, std::string where, std::optional<Error>& error)
      : where_(std::move(where)), error_(error) {
    object_ = value.if_object();
    if (object_ == nullptr) refuse(fmt::format("{} is no JSON object", where_));
  }

  void take(const char* key, std::uint64_t& out, std::uint64_t max = INT64_MAX) {
    const json::value* value = find(key);
    if (value == nullptr) return;
    const std::int64_t* number = value->if_int64();
    if (number == nullptr || *number < 0 || static_cast<std::uint64_t>(*number) > max) {
      return refuse_member(key, fmt::format("no whole number from 0 to {}", max));
    }
    out = static_cast<std::uint64_t>(*number);
  }
  void take(const char* key, std::uint32_t& out, std::uint32_t max = UINT32_MAX) {
    std::uint64_t wide = out;
    take(key, wide, max);
    out = static_cast<std::uint32_t>(wide);
  }
  void take(const char* key, double& out) {
    const json::value* value = find(key);
    if (value == nullptr) return;
    const double number = value->is_number() ? value->to_number<double>() : NAN;
    if (!std::isfinite(number)) return refuse_member(key, "no number");
    out = number;
  }
  void take(const char* key, bool& out) {
    const json::value* value = find(key);
    if (value == nullptr) return;
    if (!value->is_bool()) return refuse_member(key, "neither true nor false");
    out = value->get_bool();
  }
  void take(const char* key, std::string& out) {
    const json::value* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return refuse_member(key, "no string");
    out.assign(value->get_string().data(), value->get_string().size());
  }
  template <typename T, std::size_t N>
  void take(const char* key, const std::array<Name<T>, N>& names, T& out) {
    std::string text;
    take(key, text);
    if (error_) return;
    const auto found = std::ranges::find(names, text, &Name<T>::name);
    if (found == names.end()) return refuse_member(key, fmt::format("the unknown \"{}\"", text));
    out = found->value;
  }
  bool has(const char* key) const { return !error_ && object_->contains(key); }
  const json::value* find(const char* key) {
    if (error_) return nullptr;
    const json::value* value = object_->if_contains(key);
    if (value == nullptr) refuse(fmt::format("{} has no \"{}\"", where_, key));
    return value;
  }
  void refuse_member(const char* key, std::string_view what) {
    refuse(fmt::format("{}: \"{}\" is {}", where_, key, what));
  }

 private:
  void refuse(std::string what) {
    if (!error_) error_ = Error{ErrorCode::kCorrupt, std::move(what)};
  }

  const json::object* object_ = nullptr;
  std::string where_;
  std::optional<Error>& error_;
};

void write_model(JsonWriter& json, const ModelSection& model) {
  json.key("model").begin_object();
  json.member("layers", model.layers).member("d_model", model.d_model);
  json.member("heads", model.heads).member("kv_heads", model.kv_heads);
  json.member("d_ff", model.d_ff).member("vocab", model.vocab);
  json.member("norm", name_of(kNorms, model.norm));
  json.member("activation", name_of(kActivations, model.activation));
  json.member("positions", name_of(kPositions, model.positions));
  json.member("bias", model.bias).member("tied_embeddings", model.tied_embeddings);
  json.member("dropout", model.dropout).member("norm_eps", model.norm_eps);
  json.member("rope_theta", model.rope_theta).member("init_std", model.init_std);
  json.member("share_layers", model.share_layers);
  json.member("dtype", name_of(kDTypes, model.dtype));
  if (model.boundary != BoundaryKind::kNone) {
    json.member("boundary", name_of(kBoundaries, model.boundary));
    json.member("boundary_factor", model.boundary_factor);
  }
  if (model.compute != ComputeKind::kNative) {
    json.member("compute", name_of(kComputes, model.compute));
  }
  if (model.head_dim > 0) json.member("head_dim", model.head_dim);
  if (model.qk_norm) json.member("qk_norm", model.qk_norm);
  if (model.window > 0)
    json.member("window", model.window).member("window_pattern", model.window_pattern);
  if (model.precision != Precision::kAuto)
    json.member("precision", name_of(kPrecisions, model.precision));
  if (model.stream != StreamKind::kDType) json.member("stream", name_of(kStreams, model.stream));
  json.end_object();
}

void read_model(Fields fields, ModelSection& model) {
  fields.take("layers", model.layers);
  fields.take("d_model", model.d_model);
  fields.take("heads", model.heads);
  fields.take("kv_heads", model.kv_heads);
  fields.take("d_ff", model.d_ff);
  fields.take("vocab", model.vocab);
  fields.take("norm", kNorms, model.norm);
  fields.take("activation", kActivations, model.activation);
  fields.take("positions", kPositions, model.positions);
  fields.take("bias", model.bias);
  fields.take("tied_embeddings", model.tied_embeddings);
  fields.take("dropout", model.dropout);
  fields.take("norm_eps", model.norm_eps);
  fields.take("rope_theta", model.rope_theta);
  fields.take("init_std", model.init_std);
  fields.take("share_layers", model.share_layers);
  fields.take("dtype", kDTypes, model.dtype);
  if (fields.has("boundary")) {
    fields.take("boundary", kBoundaries, model.boundary);
    fields.take("boundary_factor", model.boundary_factor);
  }
  if (fields.has("compute")) fields.take("compute", kComputes, model.compute);
  if (fields.has("head_dim")) fields.take("head_dim", model.head_dim);
  if (fields.has("qk_norm")) fields.take("qk_norm", model.qk_norm);
  if (fields.has("window")) {
    fields.take("window", model.window);
    fields.take("window_pattern", model.window_pattern);
    if (model.window_pattern.empty()) fields.refuse_member("window_pattern", "empty");
  }
  if (fields.has("precision")) fields.take("precision", kPrecisions, model.precision);
  if (fields.has("stream")) fields.take("stream", kStreams, model.stream);
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::optional<Error> read_boundaries(const json::value& value, const std::string& path,
                                     Manifest& manifest) {
  const json::array* list = value.if_array();
  std::int64_t previous = -1;
  for (const json::value& entry : list == nullptr ? json::array() : *list) {
    const std::int64_t* layer = entry.if_int64();
    if (layer == nullptr || *layer <= previous || *layer > std::int64_t{manifest.model.layers}) {
      list = nullptr;
      break;
    }
    manifest.boundaries.push_back(static_cast<std::uint32_t>(previous = *layer));
  }
  if (list != nullptr) return std::nullopt;
  return Error{ErrorCode::kCorrupt,
               fmt::format("{}: \"boundaries\" is no rising list of the model's layers", path)};
}

// `name`: the one that can't point out of the folder.
PartFile read_part(Fields& fields, const std::string& name, const std::optional<Error>& error) {
  PartFile part;
  fields.take("file", part.file);
  fields.take("sha256", part.sha256);
  fields.take("bytes", part.bytes, kStageFileBytesMax);
  if (!error && part.file != name) fields.refuse_member("file", fmt::format("not \"{}\"", name));
  if (!error && !is_sha256(part.sha256)) fields.refuse_member("sha256", "not 64 hex digits");
  return part;
}

std::optional<Error> read_parts(const json::value& value, const std::string& path,
                                std::uint32_t index, SavedStage& stage) {
  std::optional<Error> error;
  const json::array* list = value.if_array();
  if (list == nullptr || list->empty() || list->size() > kStagePartsMax) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: stage {}: \"parts\" is no list of 1 to {} parts", path, index,
                             kStagePartsMax)};
  }
  for (const json::value& entry : *list) {
    const auto part = static_cast<std::uint32_t>(stage.parts.size());
    Fields fields(entry, fmt::format("{}: stage {} part {}", path, index, part), error);
    stage.parts.push_back(read_part(fields, part_file_name(index, part, list->size()), error));
    if (error) return error;
  }
  return std::nullopt;
}

std::optional<Error> read_stages(const json::value& value, const std::string& path,
                                 std::uint64_t format, Manifest& manifest) {
  std::optional<Error> error;
  const json::array* list = value.if_array();
  if (list == nullptr || list->empty() || list->size() > std::size_t{Limits::stages_max}) {
    return Error{ErrorCode::kCorrupt, fmt::format("{}: \"stages\" is no list of 1 to {} stages",
                                                  path, Limits::stages_max)};
  }
  std::uint32_t next_layer = 0;
  for (const json::value& entry : *list) {
    const auto index = static_cast<std::uint32_t>(manifest.stages.size());
    Fields fields(entry, fmt::format("{}: stage {}", path, index), error);
    SavedStage stage;
    fields.take("first_layer", stage.first_layer);
    fields.take("last_layer", stage.last_layer);
    if (format == 1) {
      stage.parts.push_back(read_part(fields, part_file_name(index, 0, 1), error));
    } else if (const json::value* parts = fields.find("parts")) {
      error = read_parts(*parts, path, index, stage);
    }
    if (!error && (stage.first_layer != next_layer || stage.last_layer < stage.first_layer)) {
      fields.refuse_member("first_layer", "not where the stage before ends");
    }
    if (error) return error;
    next_layer = stage.last_layer;
    manifest.stages.push_back(std::move(stage));
  }
  if (next_layer != manifest.model.layers) {
    return Error{ErrorCode::kCorrupt, fmt::format("{}: the stages hold {} of the model's {} layers",
                                                  path, next_layer, manifest.model.layers)};
  }
  return std::nullopt;
}

}  // namespace

std::string part_file_name(std::uint32_t stage, std::uint32_t part, std::size_t parts) {
  if (parts == 1) return fmt::format("stage-{}.safetensors", stage);
  return fmt::format("stage-{}-{}.safetensors", stage, part);
}

std::string to_json(const Manifest& manifest) {
  JsonWriter json(2);
  json.begin_object().member("format", kCheckpointFormat).member("run", manifest.run);
  json.member("config_version", manifest.config_version).member("step", manifest.step);
  json.member("version", manifest.version).member("era", manifest.era);
  json.member("sequence", manifest.sequence);
  if (manifest.tokens) json.member("tokens", *manifest.tokens);
  write_model(json, manifest.model);
  if (manifest.model.boundary != BoundaryKind::kNone) {
    json.key("boundaries").begin_array();
    for (const std::uint32_t layer : manifest.boundaries) json.value(layer);
    json.end_array();
  }
  json.member("optimizer_state", manifest.optimizer_state);
  if (manifest.optimizer_state) json.member("updates", manifest.updates);
  json.key("stages").begin_array();
  for (const SavedStage& stage : manifest.stages) {
    json.begin_object().member("first_layer", stage.first_layer);
    json.member("last_layer", stage.last_layer).key("parts").begin_array();
    for (const PartFile& part : stage.parts) {
      json.begin_object().member("file", part.file).member("sha256", part.sha256);
      json.member("bytes", part.bytes).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& path) {
  if (text.size() > kManifestBytesMax) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} is longer than the {} bytes allowed", path, kManifestBytesMax));
  }
  const Result<json::value> root = parse_strict_json(text, path);
  if (!root) return std::unexpected(root.error());

  std::optional<Error> error;
  Manifest manifest;
  Fields fields(*root, path, error);
  std::uint64_t format = 0;
  fields.take("format", format);
  if (!error && (format < kCheckpointFormatOldest || format > kCheckpointFormat)) {
    return fail(ErrorCode::kIncompatible,
                fmt::format("{} has format {}, and this swarmline knows formats {} to {}: use the "
                            "swarmline that wrote it",
                            path, format, kCheckpointFormatOldest, kCheckpointFormat));
  }
  fields.take("run", manifest.run);
  fields.take("config_version", manifest.config_version);
  fields.take("step", manifest.step);
  fields.take("version", manifest.version);
  if (!error && format > 1) fields.take("era", manifest.era);
  fields.take("sequence", manifest.sequence);
  if (fields.has("tokens")) fields.take("tokens", manifest.tokens.emplace());
  fields.take("optimizer_state", manifest.optimizer_state);
  if (!error && manifest.optimizer_state) fields.take("updates", manifest.updates);
  if (const json::value* model = fields.find("model")) {
    read_model(Fields(*model, path + ": model", error), manifest.model);
  }
  if (!error && manifest.model.boundary != BoundaryKind::kNone) {
    if (const json::value* list = fields.find("boundaries")) {
      error = read_boundaries(*list, path, manifest);
    }
  }
  if (const json::value* stages = fields.find("stages")) {
    error = read_stages(*stages, path, format, manifest);
  }
  if (error) return std::unexpected(std::move(*error));
  return manifest;
}

}  // namespace swarmline
