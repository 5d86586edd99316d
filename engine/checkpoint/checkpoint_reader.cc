#include "engine/checkpoint/checkpoint_reader.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/checkpoint/checkpoint_folder.h"

namespace swarmline {

namespace {

bool is_state_tensor(std::string_view name) {
  return name.starts_with(kOptimizerPrefix) || name.starts_with(kPreviousPrefix);
}

}  // namespace

Result<CheckpointReader> CheckpointReader::open(const std::string& path) {
  CheckpointReader reader;
  reader.path_ = path;
  if (!is_folder(path)) {
    SWARMLINE_TRY(reader.add_file(path));
    return reader;
  }
  if (!file_exists(path + "/manifest.json")) {
    const std::string folder =
        is_folder(path + "/checkpoints") ? path + "/checkpoints" : path;  // either is understood
    const Result<std::optional<CheckpointEntry>> latest = latest_checkpoint(folder);
    if (!latest) return std::unexpected(latest.error());
    if (!*latest) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("{} holds no checkpoint: name a run folder, a checkpoints/step-N "
                              "folder or a .safetensors file",
                              path));
    }
    reader.path_ = (*latest)->path;
  }
  Result<Manifest> manifest = read_checkpoint(reader.path_, Verify::kSizes);
  if (!manifest) return std::unexpected(manifest.error());
  for (const SavedStage& stage : manifest->stages)
    for (const PartFile& part : stage.parts)
      SWARMLINE_TRY(reader.add_file(reader.path_ + "/" + part.file));
  reader.manifest_ = std::move(*manifest);
  return reader;
}

Result<void> CheckpointReader::add_file(const std::string& path) {
  Result<SafetensorsFile> opened = SafetensorsFile::open(path);
  if (!opened) return std::unexpected(opened.error());
  files_.push_back(std::make_unique<SafetensorsFile>(std::move(*opened)));
  const SafetensorsFile& file = *files_.back();
  for (const TensorInfo& info : file.tensors()) {
    const Tensor tensor{.info = &info, .bytes = file.bytes(info)};
    auto& kind = is_state_tensor(info.name) ? state_tensors_ : tensors_;
    if (!kind.emplace(info.name, tensor).second) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: tensor \"{}\" is in another stage's file too", path, info.name));
    }
  }
  return {};
}

Result<BytesView> CheckpointReader::find(const std::string& name) const {
  const auto& kind = is_state_tensor(name) ? state_tensors_ : tensors_;
  const auto found = kind.find(name);
  if (found == kind.end())
    return fail(ErrorCode::kNotFound, fmt::format("{} has no tensor \"{}\"", path_, name));
  return found->second.bytes;
}

Result<void> CheckpointReader::load(const ParameterLayout& layout, MutableBytes arena,
                                    const std::string& prefix) const {
  SWARMLINE_CHECK(arena.size() == layout.bytes());
  const std::size_t element_bytes = size_bytes(layout.dtype);
  for (const ParameterSlot& slot : layout.slots) {
    const auto found = tensors_.find(prefix + slot.name);
    if (found == tensors_.end()) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("{} has no tensor \"{}{}\"", path_, prefix, slot.name));
    }
    const TensorInfo& info = *found->second.info;
    if (info.dtype != layout.dtype || info.shape != slot.shape) {
      return fail(ErrorCode::kIncompatible,
                  fmt::format("{}: tensor \"{}\" is {} ({}), and the model needs {} ({})", path_,
                              info.name, safetensors_name(info.dtype), fmt::join(info.shape, ", "),
                              safetensors_name(layout.dtype), fmt::join(slot.shape, ", ")));
    }
    const BytesView bytes = found->second.bytes;
    SWARMLINE_CHECK(bytes.size() == slot.elements * element_bytes);
    std::memcpy(arena.data() + slot.offset * element_bytes, bytes.data(), bytes.size());
  }
  return {};
}

}  // namespace swarmline
