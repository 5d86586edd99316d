#include "engine/data/piece_cache.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/marks.h"
#include "engine/checkpoint/sha256.h"

namespace swarmline {

namespace fs = std::filesystem;

namespace {

// A piece, or one that a process was writing: it goes in its turn.
bool is_ours(const std::string& name) {
  return std::min(name.find_first_not_of("0123456789abcdef"), name.size()) == kSha256HexDigits &&
         (name.size() == kSha256HexDigits || name[kSha256HexDigits] == '.');
}

}  // namespace

Result<void> PieceCache::open() {
  SWARMLINE_TRY(make_folders(folder_));
  const auto names = list_folder(folder_);
  if (!names) return std::unexpected(names.error());
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  for (const std::string& name : *names) {
    std::error_code error;
    const fs::file_time_type written = fs::last_write_time(folder_ + "/" + name, error);
    if (is_ours(name) && !error) found.emplace_back(written, name);
  }
  std::ranges::sort(found);
  for (const auto& [written, name] : found)
    if (const auto bytes = file_bytes(path_of(name))) note(name, *bytes);
  evict();
  return {};
}

Result<PieceCache::Bytes> PieceCache::find(const std::string& sha256) {
  const auto file = MappedFile::open(path_of(sha256));
  if (!file) {
    remove(sha256);
    if (file.error().code == ErrorCode::kNotFound) return Bytes();
    return std::unexpected(file.error());
  }
  if (!checked_.contains(sha256) && sha256_hex((*file)->bytes()) != sha256) {
    SWARMLINE_MARK("piece_cache.damaged");
    remove(sha256);
    return Bytes();
  }
  checked_.insert(sha256);
  if (!kept_.contains(sha256)) note(sha256, (*file)->bytes().size());  // another process's
  touch(sha256);
  evict();
  return *file;
}

Result<PieceCache::Bytes> PieceCache::put(const std::string& sha256, BytesView bytes) {
  if (sha256_hex(bytes) != sha256) return Bytes();
  // Another process may write the same one now.
  const std::string aside = fmt::format("{}.{}-{:x}", path_of(sha256), ::getpid(),
                                        reinterpret_cast<std::uintptr_t>(this));
  auto file = AtomicFile::create(aside);
  if (!file) return std::unexpected(std::move(file).error());
  SWARMLINE_TRY(file->append(bytes));
  SWARMLINE_TRY(file->finish());
  std::error_code error;
  fs::rename(aside, path_of(sha256), error);
  if (error)
    return fail(ErrorCode::kIo, fmt::format("can't rename {}: {}", aside, error.message()));
  auto kept = find(sha256);
  if (kept && !*kept)
    return fail(ErrorCode::kIo, fmt::format("{} is not what was written", path_of(sha256)));
  return kept;
}

void PieceCache::note(const std::string& sha256, std::uint64_t bytes) {
  turns_.push_back(sha256);
  kept_[sha256] = {.turn = std::prev(turns_.end()), .bytes = bytes};
  bytes_ += bytes;
}

void PieceCache::touch(const std::string& sha256) {
  turns_.splice(turns_.end(), turns_, kept_.at(sha256).turn);
}

void PieceCache::remove(const std::string& sha256) {
  std::error_code ignored;
  fs::remove(path_of(sha256), ignored);
  checked_.erase(sha256);
  const auto kept = kept_.find(sha256);
  if (kept == kept_.end()) return;
  bytes_ -= kept->second.bytes;
  turns_.erase(kept->second.turn);
  kept_.erase(kept);
}

// The newest stays whatever the bound: somebody uses it.
void PieceCache::evict() {
  while (bytes_ > bytes_max_ && turns_.size() > 1) {
    SWARMLINE_MARK("piece_cache.evicted");
    remove(std::string(turns_.front()));
  }
}

}  // namespace swarmline
