// Pieces of data on disk, by their content: a file each, named by its SHA-256, so that a piece is
// fetched once on a machine, for whichever run.
//   What:      at most `bytes_max` stay; what was not used for longest goes first. What an earlier
//              process left is checked when this one first uses it, and removed where it is not
//              what its name says. Several processes may share a folder: each bounds what it knows.
//   Ownership: who was given a file's bytes keeps them, also when the file goes.
//   Thread:    one at a time; it reads and writes files.
//   Errors:    kIo: the folder can't be read or written.
//   Bounds:    bytes_max, and one piece.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/store/files.h"

namespace swarmline {

class PieceCache {
 public:
  PieceCache(std::string folder, std::uint64_t bytes_max)
      : folder_(std::move(folder)), bytes_max_(bytes_max) {}
  PieceCache(const PieceCache&) = delete;
  PieceCache& operator=(const PieceCache&) = delete;

  Result<void> open();  // makes the folder, or finds what is there
  // Null: it is not there.
  using Bytes = std::shared_ptr<const MappedFile>;
  Result<Bytes> find(const std::string& sha256);
  // Null: these bytes have another hash, and are not kept.
  Result<Bytes> put(const std::string& sha256, BytesView bytes);

  std::uint64_t bytes() const { return bytes_; }
  std::size_t pieces() const { return kept_.size(); }

 private:
  struct Kept {
    std::list<std::string>::iterator turn;
    std::uint64_t bytes = 0;
  };
  std::string path_of(const std::string& sha256) const { return folder_ + "/" + sha256; }
  void note(const std::string& sha256, std::uint64_t bytes);
  void touch(const std::string& sha256);
  void remove(const std::string& sha256);
  void evict();

  std::string folder_;
  std::uint64_t bytes_max_;
  std::uint64_t bytes_ = 0;
  std::list<std::string> turns_;  // unused for longest first
  std::map<std::string, Kept> kept_;
  std::set<std::string> checked_;  // by this process
};

}  // namespace swarmline
