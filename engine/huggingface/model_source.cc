#include "engine/huggingface/model_source.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/huggingface/float_convert.h"
#include "engine/huggingface/model_difference.h"
#include "engine/store/strict_json.h"

namespace swarmline {
namespace {

constexpr std::string_view kHfPrefix = "hf:", kCheckpointPrefix = "checkpoint:";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

// Buffers of older versions, which are no parameters.
bool is_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// Folders saved from the model without its head lack the first word.
std::vector<std::string> spellings(const std::string& name) {
  std::vector<std::string> all = {name};
  for (const std::string_view word : {"transformer.", "model."})
    if (name.starts_with(word)) all.push_back(name.substr(word.size()));
  return all;
}

std::string list_text(std::string_view title, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  const std::size_t shown = std::min(names.size(), kMisfitsNamedMax);
  std::string text = fmt::format(
      "; {}: {}", title, fmt::join(names.begin(), names.begin() + std::ptrdiff_t(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

const std::optional<Manifest>& ModelSource::manifest() const {
  static const std::optional<Manifest> kNone;
  return checkpoint_ ? checkpoint_->manifest() : kNone;
}

Result<ModelSource> ModelSource::open(const std::string& text) {
  if (text.starts_with(kHfPrefix)) return open_hf(text.substr(kHfPrefix.size()));
  if (text.starts_with(kCheckpointPrefix))
    return open_checkpoint(text.substr(kCheckpointPrefix.size()));
  return file_exists(text + "/config.json") ? open_hf(text) : open_checkpoint(text);
}

Result<ModelSource> ModelSource::open_checkpoint(const std::string& path) {
  auto reader = CheckpointReader::open(path);
  if (!reader) return std::unexpected(std::move(reader).error());
  if (!reader->manifest())
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: found a single file, expected a run folder or a checkpoints/step-N "
                    "folder, whose manifest says what the model is",
                    path));
  ModelSource source;
  source.checkpoint_ = std::make_shared<CheckpointReader>(std::move(*reader));
  const Manifest& manifest = *source.checkpoint_->manifest();
  source.model_ = {.shape = manifest.model, .sequence = manifest.sequence, .seed = 0};
  source.boundaries_ = manifest.boundaries;
  source.path_ = source.checkpoint_->path();
  for (const auto& [name, tensor] : source.checkpoint_->tensors())
    source.values_[name] = {.name = name,
                            .dtype = tensor.info->dtype,
                            .shape = tensor.info->shape,
                            .bytes = tensor.bytes,
                            .transposed = false,
                            .first = 0,
                            .total = tensor.info->shape.empty() ? 1 : tensor.info->shape[0]};
  return source;
}

Result<ModelSource> ModelSource::open_hf(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const auto text = read_text_file(path, kHfConfigBytesMax);
  if (!text)
    return fail(ErrorCode::kNotFound, fmt::format("{} is no folder that transformers opens: {}",
                                                  folder, text.error().what));
  auto config = parse_hf_config(*text, path);
  if (!config) return std::unexpected(std::move(config).error());
  ModelSource source;
  source.path_ = folder;
  source.model_ = config->model;
  source.hf_ = std::move(*config);
  SWARMLINE_TRY(source.add_hf_files(folder));
  source.match_hf_tensors();
  return source;
}

Result<void> ModelSource::add_hf_files(const std::string& folder) {
  const std::string index = fmt::format("{}/{}", folder, kIndexName);
  if (!file_exists(index)) {
    const std::string whole = folder + "/model.safetensors";
    if (file_exists(whole)) return add_hf_file(whole);
    return fail(ErrorCode::kNotFound,
                fmt::format("{} has neither model.safetensors nor {} (of a folder with .bin files, "
                            "save_pretrained() of transformers makes one)",
                            folder, kIndexName));
  }
  auto text = read_text_file(index, kHfIndexBytesMax);
  if (!text) return std::unexpected(std::move(text).error());
  auto root = parse_strict_json(*text, index);
  if (!root) return std::unexpected(std::move(root).error());
  const boost::json::object* object = root->if_object();
  const boost::json::value* map = object == nullptr ? nullptr : object->if_contains("weight_map");
  if (map == nullptr || !map->is_object())
    return fail(ErrorCode::kCorrupt, fmt::format("{} has no \"weight_map\"", index));
  std::set<std::string> names;
  for (const auto& entry : map->get_object()) {
    const std::string name =
        entry.value().is_string() ? std::string(entry.value().get_string()) : "";
    if (name.empty() || name.find('/') != std::string::npos || name.front() == '.')
      return fail(ErrorCode::kCorrupt, fmt::format("{}: \"{}\" is in no file of the folder", index,
                                                   std::string_view(entry.key())));
    names.insert(name);
  }
  if (names.size() > kHfShardsMax)
    return fail(ErrorCode::kCorrupt, fmt::format("{} names {} files; at most {} are read", index,
                                                 names.size(), kHfShardsMax));
  for (const std::string& name : names) SWARMLINE_TRY(add_hf_file(folder + "/" + name));
  return {};
}

Result<void> ModelSource::add_hf_file(const std::string& path) {
  auto opened = SafetensorsFile::open(path);
  if (!opened) return std::unexpected(std::move(opened).error());
  files_.push_back(std::make_shared<SafetensorsFile>(std::move(*opened)));
  const SafetensorsFile& file = *files_.back();
  for (const TensorInfo& info : file.tensors()) {
    if (is_buffer(info.name)) continue;
    if (!hf_files_.emplace(info.name, std::pair(&info, file.bytes(info))).second)
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: tensor \"{}\" is in another file too", path, info.name));
  }
  return {};
}

void ModelSource::match_hf_tensors() {
  std::set<std::string> taken;
  for (const HfTensor& tensor : hf_tensors(hf_->architecture, model_)) {
    auto found = hf_files_.end();
    for (const std::string& name : spellings(tensor.name))
      if (found == hf_files_.end()) found = hf_files_.find(name);
    if (found == hf_files_.end()) {
      missing_.push_back(tensor.name);
      continue;
    }
    taken.insert(found->first);
    const auto& [info, bytes] = found->second;
    if (info->shape != tensor.shape || !is_float(info->dtype)) {
      misshapen_.push_back(fmt::format("{} is {} {}, expected {}", tensor.name,
                                       safetensors_name(info->dtype), shape_text(info->shape),
                                       shape_text(tensor.shape)));
      continue;
    }
    take_parts(tensor, *info, bytes);
  }
  for (const auto& [name, tensor] : hf_files_) {
    const bool same_again = name == "lm_head.weight" && model_.shape.tied_embeddings;
    if (!taken.contains(name) && !same_again) extra_.push_back(name);
  }
}

void ModelSource::take_parts(const HfTensor& tensor, const TensorInfo& info, BytesView bytes) {
  const bool matrix = tensor.shape.size() == 2;
  const std::int64_t total = tensor.transposed ? tensor.shape[1] : tensor.shape[0];
  std::int64_t first = 0;
  for (const HfPart& part : tensor.parts) {
    Values values{.name = tensor.name,
                  .dtype = info.dtype,
                  .shape = {part.outputs},
                  .bytes = bytes,
                  .transposed = tensor.transposed,
                  .first = first,
                  .total = total};
    if (matrix) values.shape.push_back(tensor.shape[tensor.transposed ? 0 : 1]);
    values_[part.ours] = std::move(values);
    first += part.outputs;
  }
}

bool ModelSource::biases_are_zero() const {
  return std::ranges::all_of(values_, [](const auto& entry) {
    const auto& [name, values] = entry;
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    return !name.ends_with(".bias") || std::ranges::all_of(values.bytes, is_zero);
  });
}

Result<void> ModelSource::check(const ModelSpec& wanted, const ParameterLayout& layout) const {
  ModelSpec here = model_;
  // GPT-2 always has biases there.
  const bool unbiased = hf_ && hf_->architecture == HfArchitecture::kGpt2 && here.shape.bias &&
                        !wanted.shape.bias && biases_are_zero();
  if (unbiased) here.shape.bias = false;
  std::vector<std::string> misshapen = misshapen_, missing, extra = extra_;
  std::set<std::string> needed;
  for (const ParameterSlot& slot : layout.slots) {
    needed.insert(slot.name);
    const auto found = values_.find(slot.name);
    if (found == values_.end()) {
      missing.push_back(slot.name);
      continue;
    }
    std::vector<std::int64_t> shape = found->second.shape;
    if (slot.name == "embed.positions.weight" && shape.size() == 2)
      shape[0] = std::min(shape[0], slot.shape[0]);
    if (shape != slot.shape || !is_float(found->second.dtype))
      misshapen.push_back(fmt::format("{} is {} {}, expected {}", slot.name,
                                      safetensors_name(found->second.dtype),
                                      shape_text(found->second.shape), shape_text(slot.shape)));
  }
  for (const std::string& name : missing_) missing.push_back(name + " (of the folder)");
  for (const auto& [name, values] : values_)
    if (!needed.contains(name) && !(unbiased && name.ends_with(".bias"))) extra.push_back(name);
  const std::vector<std::string> keys = model_differences(wanted, here);
  if (keys.empty() && misshapen.empty() && missing.empty() && extra.empty()) return {};
  std::string text = fmt::format("{} does not fit the model", path_);
  if (!keys.empty()) text += fmt::format(": {}", fmt::join(keys, ", "));
  text += list_text("tensors of another shape", misshapen);
  text += list_text("missing tensors", missing) + list_text("extra tensors", extra);
  return fail(ErrorCode::kUserMistake, std::move(text));
}

void ModelSource::read(const std::string& name, DType dtype, MutableBytes out) const {
  const auto found = values_.find(name);
  SWARMLINE_CHECK_MSG(found != values_.end(), name);
  const Values& values = found->second;
  const std::size_t width = size_bytes(values.dtype), out_width = size_bytes(dtype);
  const std::size_t wanted = out.size() / out_width;
  const auto outputs = static_cast<std::size_t>(values.shape[0]);
  const auto first = static_cast<std::size_t>(values.first);
  const std::size_t inputs =
      values.shape.size() < 2 ? 1 : static_cast<std::size_t>(values.shape[1]);
  SWARMLINE_CHECK(wanted <= outputs * inputs);
  if (!values.transposed) {
    convert_floats(values.dtype, values.bytes.subspan(first * inputs * width, wanted * width),
                   dtype, out);
    return;
  }
  SWARMLINE_CHECK(wanted == outputs * inputs);
  const auto total = static_cast<std::size_t>(values.total);
  Buffer row(outputs * out_width);
  for (std::size_t i = 0; i < inputs; ++i) {
    convert_floats(values.dtype, values.bytes.subspan((i * total + first) * width, outputs * width),
                   dtype, row.bytes());
    for (std::size_t o = 0; o < outputs; ++o)
      std::memcpy(out.data() + (o * inputs + i) * out_width, row.data() + o * out_width, out_width);
  }
}

}  // namespace swarmline
