// SHA-256 of files, remembered in a folder from process to process: a large corpus is read once on
// a machine, as long as its files stay as they are.
//   What:      the hash of a file's first bytes, and of each piece of them. Remembered by path,
//              number of bytes, and the file's size, number and times of change; whoever changes a
//              file changes these.
//   Thread:    any; several processes may share the folder.
//   Errors:    kNotFound, kIo; kStopped after give_up(). A folder that can't be read or written
//              costs the time alone.
//   Bounds:    kEntriesMax remembered, one small file each; beyond, all are forgotten. Files with
//              fewer than kRememberedBytesMin to hash are hashed each time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/units.h"

namespace swarmline {

struct HashedPieces {
  std::string sha256;  // of all: 64 hex digits
  std::string pieces;  // of each, one after the other: 64 each
};

class FileHashes {
 public:
  static constexpr std::uint64_t kRememberedBytesMin = 4 * kMiB;
  static constexpr std::size_t kEntriesMax = 65'536;

  explicit FileHashes(std::string folder);  // empty: nothing is remembered

  // Of the first `used` bytes, which the file must have: 64 hex digits.
  Result<std::string> of(const std::string& path, std::uint64_t used) const;
  // The same, and of each `piece_bytes` of them, the last piece shorter; in one reading.
  Result<HashedPieces> with_pieces(const std::string& path, std::uint64_t used,
                                   std::uint64_t piece_bytes) const;
  void give_up() { given_up_ = true; }  // from any thread: no more is read

 private:
  // `piece_bytes` 0: without.
  Result<HashedPieces> hash_of(const std::string& path, std::uint64_t used,
                               std::uint64_t piece_bytes) const;
  Result<HashedPieces> remembered(const std::string& path, std::uint64_t used,
                                  std::uint64_t piece_bytes) const;

  std::string folder_;
  std::atomic<bool> given_up_ = false;
};

}  // namespace swarmline
