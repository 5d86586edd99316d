// A peer's way to the pieces of the run's data (engine/data/data_pieces.h): those of its own files,
// which it gives to others, and those that it fetched, which it keeps on its disk.
//   Ownership: outlives the peer.
//   Thread:    control thread; files are read, hashed and written elsewhere. `done` comes on the
//              control thread: later, or at once where nothing is begun; not after the folder goes.
//   Errors:    kNotFound: it has no such piece of its own. kIo, kRefused.
//   Bounds:    bytes_max() of fetched pieces stay on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace swarmline {

class DataFolder {
 public:
  struct Piece {
    std::uint32_t number = 0;
    std::string sha256;  // 64 hex digits: what it must be
  };
  using Read = std::function<void(Result<SharedBytes>)>;
  using Kept = std::function<void(Result<bool>)>;

  virtual ~DataFolder() = default;
  // Of this machine's own files, which were compared with the run's.
  virtual void read(std::uint32_t piece, Read done) = 0;
  // Whether it was fetched before and is here; then it is in use.
  virtual void find(const Piece& piece, Kept done) = 0;
  // The same once it has come; false: the bytes are not that piece, and are not kept.
  virtual void keep(const Piece& piece, SharedBytes bytes, Kept done) = 0;
  // Pieces in use can be read at once, whatever goes from the disk; the others may go.
  virtual void use_only(const std::set<std::uint32_t>& pieces) = 0;
  virtual std::uint64_t bytes_max() const = 0;
};

}  // namespace swarmline
