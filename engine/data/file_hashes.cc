#include "engine/data/file_hashes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/checkpoint/sha256.h"
#include "engine/store/files.h"

namespace swarmline {

namespace {

constexpr std::uint64_t kHashedAtOnce = 16 * kMiB;

bool is_hashes(const std::string& text, std::uint64_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

FileHashes::FileHashes(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  const auto names = list_folder(folder_);
  if (names && names->size() > kEntriesMax) (void)remove_folder(folder_);
}

Result<HashedPieces> FileHashes::hash_of(const std::string& path, std::uint64_t used,
                                         std::uint64_t piece_bytes) const {
  const auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  const BytesView bytes = (*file)->bytes();
  if (bytes.size() < used)
    return fail(ErrorCode::kIo, fmt::format("{} was shortened while it was read", path));
  const std::uint64_t at_once = piece_bytes > 0 ? piece_bytes : kHashedAtOnce;
  Sha256 hash;
  HashedPieces hashed;
  for (std::uint64_t at = 0; at < used; at += at_once) {
    if (given_up_) return fail(ErrorCode::kStopped, "it ends before it has read " + path);
    const BytesView piece = bytes.subspan(at, std::min(at_once, used - at));
    hash.update(piece);
    if (piece_bytes > 0) hashed.pieces += sha256_hex(piece);
  }
  hashed.sha256 = hash.finish_hex();
  return hashed;
}

Result<HashedPieces> FileHashes::remembered(const std::string& path, std::uint64_t used,
                                            std::uint64_t piece_bytes) const {
  const auto before = file_stamp(path);
  if (!before) return std::unexpected(before.error());
  if (folder_.empty() || used < kRememberedBytesMin) return hash_of(path, used, piece_bytes);
  const std::string of_pieces = piece_bytes > 0 ? fmt::format(" in {}", piece_bytes) : "";
  const std::string key = fmt::format("{} {} {}{}", used, *before, path, of_pieces);
  const std::string entry = folder_ + "/" + sha256_hex(as_bytes(key));
  const std::uint64_t pieces = piece_bytes > 0 ? (used + piece_bytes - 1) / piece_bytes : 0;
  const std::uint64_t digits = kSha256HexDigits * (1 + pieces);
  if (const auto known = read_text_file(entry, digits); known && is_hashes(*known, digits))
    return HashedPieces{.sha256 = known->substr(0, kSha256HexDigits),
                        .pieces = known->substr(kSha256HexDigits)};
  auto hashed = hash_of(path, used, piece_bytes);
  if (!hashed) return hashed;
  const auto after = file_stamp(path);
  if (!after || *after != *before)
    return fail(ErrorCode::kIo, fmt::format("{} was changed while it was read", path));
  if (make_folders(folder_))
    (void)write_text_file_atomically(entry, hashed->sha256 + hashed->pieces);
  return hashed;
}

Result<std::string> FileHashes::of(const std::string& path, std::uint64_t used) const {
  auto hashed = remembered(path, used, 0);
  if (!hashed) return std::unexpected(std::move(hashed).error());
  return std::move(hashed->sha256);
}

Result<HashedPieces> FileHashes::with_pieces(const std::string& path, std::uint64_t used,
                                             std::uint64_t piece_bytes) const {
  return remembered(path, used, piece_bytes);
}

}  // namespace swarmline
