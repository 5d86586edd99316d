#include "engine/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "engine/checkpoint/sha256.h"
#include "engine/store/files.h"
#include "engine/store/parallel.h"

namespace swarmline {

namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kDamaged = ".damaged";
constexpr std::uint32_t kReadersMax = 8;  // files read at a time

std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

// 0 where its manifest can't be read: then it is no checkpoint either.
std::uint64_t era_of(const std::string& path) {
  const std::string manifest_path = path + "/manifest.json";
  const auto text = read_text_file(manifest_path, kManifestBytesMax);
  if (!text) return 0;
  const auto manifest = parse_manifest(*text, manifest_path);
  return manifest ? manifest->era : 0;
}

// Folders step-*SUFFIX but the newest `keep`.
Result<void> remove_steps(const std::string& checkpoints_folder, std::string_view suffix,
                          std::uint32_t keep) {
  if (!is_folder(checkpoints_folder)) return {};
  const auto names = list_folder(checkpoints_folder);
  if (!names) return std::unexpected(names.error());
  std::vector<std::pair<std::uint64_t, std::string>> found;
  for (const std::string& name : *names) {
    if (!name.starts_with(kStepPrefix) || !name.ends_with(suffix)) continue;
    const std::string_view stem = std::string_view(name).substr(0, name.find('.'));
    if (const auto step = step_of(stem)) found.emplace_back(*step, name);
  }
  std::ranges::sort(found);
  for (std::size_t i = 0; i + keep < found.size(); ++i)
    SWARMLINE_TRY(remove_folder(checkpoints_folder + "/" + found[i].second));
  return {};
}

Result<void> check_part(const std::string& path, const PartFile& part, Verify verify) {
  const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path + "/" + part.file);
  if (!file) return std::unexpected(file.error());
  const BytesView bytes = (*file)->bytes();
  if (bytes.size() != part.bytes)
    return fail(ErrorCode::kCorrupt, fmt::format("{} has {} bytes, and the manifest says {}",
                                                 (*file)->path(), bytes.size(), part.bytes));
  if (verify == Verify::kContents && sha256_hex(bytes) != part.sha256)
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} is damaged: its SHA-256 is not the manifest's", (*file)->path()));
  return {};
}

}  // namespace

std::string partial_checkpoint_path(const std::string& checkpoints_folder, std::uint64_t step,
                                    std::uint64_t attempt) {
  return fmt::format("{}/{}{}.{}{}", checkpoints_folder, kStepPrefix, step, attempt, kPartial);
}

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
    entries.push_back(CheckpointEntry{.era = era_of(path), .step = *step, .path = path});
  }
  std::ranges::sort(entries, {},
                    [](const CheckpointEntry& entry) { return std::pair(entry.era, entry.step); });
  return entries;
}

Result<void> remove_partial_checkpoints(const std::string& checkpoints_folder) {
  return remove_steps(checkpoints_folder, kPartial, 0);
}

Result<void> set_aside_damaged(const std::string& path) {
  SWARMLINE_MARK("checkpoint_folder.set_aside");
  return replace_folder(path, path + std::string(kDamaged));
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

Result<void> remove_damaged_checkpoints(const std::string& checkpoints_folder, std::uint32_t keep) {
  return remove_steps(checkpoints_folder, kDamaged, keep);
}

bool is_damage(const Error& error) {
  return error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kNotFound;
}

Result<Manifest> read_checkpoint(const std::string& path, Verify verify) {
  const std::string manifest_path = path + "/manifest.json";
  const Result<std::string> text = read_text_file(manifest_path, kManifestBytesMax);
  if (!text) return std::unexpected(text.error());
  Result<Manifest> manifest = parse_manifest(*text, manifest_path);
  if (!manifest) return manifest;
  std::vector<const PartFile*> parts;
  for (const SavedStage& stage : manifest->stages)
    for (const PartFile& part : stage.parts) parts.push_back(&part);
  // The sizes first: they cost nothing.
  for (const PartFile* part : parts) SWARMLINE_TRY(check_part(path, *part, Verify::kSizes));
  if (verify == Verify::kSizes) return manifest;
  SWARMLINE_TRY(for_each_at_once(parts.size(), kReadersMax, [&](std::size_t i) {
    return check_part(path, *parts[i], Verify::kContents);
  }));
  return manifest;
}

}  // namespace swarmline
