// Fetched pieces of a run's data that are in use: what reads its files where this machine has none.
//   Ownership: shared by who puts them in and who reads them.
//   Thread:    control thread. Errors: kNotFound, of a piece that is not in use.
//   Bounds:    its owner's: use_only().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "base/result.h"
#include "engine/data/data_pieces.h"
#include "engine/data/piece_cache.h"

namespace swarmline {

class FetchedPieces {
 public:
  void add(std::uint32_t piece, PieceCache::Bytes bytes) { in_use_[piece] = std::move(bytes); }
  bool has(std::uint32_t piece) const { return in_use_.contains(piece); }
  void use_only(const std::set<std::uint32_t>& pieces) {
    std::erase_if(in_use_, [&](const auto& entry) { return !pieces.contains(entry.first); });
  }
  Result<void> read(const DataPieces& pieces, const ByteRange& range,
                    std::span<std::byte> out) const;

 private:
  std::map<std::uint32_t, PieceCache::Bytes> in_use_;
};

}  // namespace swarmline
