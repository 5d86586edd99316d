#include "engine/data/file_hashes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/checkpoint/sha256.h"
#include "engine/store/files.h"

namespace swarmline {

namespace {

constexpr std::uint64_t kHexDigits = 64;
constexpr std::uint64_t kHashedAtOnce = 16 * kMiB;

bool is_hash(const std::string& text) {
  return text.size() == kHexDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

FileHashes::FileHashes(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  const auto names = list_folder(folder_);
  if (names && names->size() > kEntriesMax) (void)remove_folder(folder_);
}

Result<std::string> FileHashes::hash_of(const std::string& path, std::uint64_t used) const {
  const auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  const BytesView bytes = (*file)->bytes();
  if (bytes.size() < used)
    return fail(ErrorCode::kIo, fmt::format("{} was shortened while it was read", path));
  Sha256 hash;
  for (std::uint64_t at = 0; at < used; at += kHashedAtOnce) {
    if (given_up_) return fail(ErrorCode::kStopped, "it ends before it has read " + path);
    hash.update(bytes.subspan(at, std::min(kHashedAtOnce, used - at)));
  }
  return hash.finish_hex();
}

Result<std::string> FileHashes::of(const std::string& path, std::uint64_t used) const {
  const auto before = file_stamp(path);
  if (!before) return std::unexpected(before.error());
  if (folder_.empty() || used < kRememberedBytesMin) return hash_of(path, used);
  const std::string key = fmt::format("{} {} {}", used, *before, path);
  const std::string entry = folder_ + "/" + sha256_hex(as_bytes(key));
  if (const auto known = read_text_file(entry, kHexDigits); known && is_hash(*known)) return *known;
  auto hash = hash_of(path, used);
  if (!hash) return hash;
  const auto after = file_stamp(path);
  if (!after || *after != *before)
    return fail(ErrorCode::kIo, fmt::format("{} was changed while it was read", path));
  if (make_folders(folder_)) (void)write_text_file_atomically(entry, *hash);
  return hash;
}

}  // namespace swarmline
