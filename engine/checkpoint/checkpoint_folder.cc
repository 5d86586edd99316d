#include "engine/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/checkpoint/sha256.h"
#include "engine/store/files.h"

namespace swarmline {

namespace {

constexpr std::string_view kStepPrefix = "step-";

std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

}  // namespace

std::string checkpoint_path(const std::string& checkpoints_folder, std::uint64_t step) {
  return fmt::format("{}/{}{}", checkpoints_folder, kStepPrefix, step);
}

Result<std::vector<CheckpointEntry>> list_checkpoints(const std::string& checkpoints_folder) {
  std::vector<CheckpointEntry> entries;
  if (!is_folder(checkpoints_folder)) return entries;
  const Result<std::vector<std::string>> names = list_folder(checkpoints_folder);
  if (!names) return std::unexpected(names.error());
  for (const std::string& name : *names) {
    const std::optional<std::uint64_t> step = step_of(name);
    const std::string path = checkpoints_folder + "/" + name;
    if (!step || !file_exists(path + "/manifest.json")) continue;
    entries.push_back(CheckpointEntry{.step = *step, .path = path});
  }
  std::ranges::sort(entries, {}, &CheckpointEntry::step);
  return entries;
}

Result<std::optional<CheckpointEntry>> latest_checkpoint(const std::string& checkpoints_folder) {
  Result<std::vector<CheckpointEntry>> entries = list_checkpoints(checkpoints_folder);
  if (!entries) return std::unexpected(entries.error());
  while (!entries->empty()) {
    const Result<Manifest> manifest = read_checkpoint(entries->back().path, Verify::kSizes);
    if (manifest) return entries->back();
    log(LogLevel::kWarn, "checkpoint passed over: {}", manifest.error().what);
    entries->pop_back();
  }
  return std::nullopt;
}

Result<void> keep_newest_checkpoints(const std::string& checkpoints_folder, std::uint32_t keep) {
  SWARMLINE_CHECK(keep >= 1);
  const Result<std::vector<CheckpointEntry>> entries = list_checkpoints(checkpoints_folder);
  if (!entries) return std::unexpected(entries.error());
  for (std::size_t i = 0; i + keep < entries->size(); ++i) {
    SWARMLINE_TRY(remove_folder((*entries)[i].path));
  }
  return {};
}

Result<Manifest> read_checkpoint(const std::string& path, Verify verify) {
  const std::string manifest_path = path + "/manifest.json";
  const Result<std::string> text = read_text_file(manifest_path, kManifestBytesMax);
  if (!text) return std::unexpected(text.error());
  Result<Manifest> manifest = parse_manifest(*text, manifest_path);
  if (!manifest) return manifest;
  for (const StageFile& stage : manifest->stages) {
    const Result<std::shared_ptr<const MappedFile>> file =
        MappedFile::open(path + "/" + stage.file);
    if (!file) return std::unexpected(file.error());
    const BytesView bytes = (*file)->bytes();
    if (bytes.size() != stage.bytes) {
      return fail(ErrorCode::kCorrupt, fmt::format("{} has {} bytes, and the manifest says {}",
                                                   (*file)->path(), bytes.size(), stage.bytes));
    }
    if (verify == Verify::kContents && sha256_hex(bytes) != stage.sha256) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{} is damaged: its SHA-256 is not the manifest's", (*file)->path()));
    }
  }
  return manifest;
}

}  // namespace swarmline
