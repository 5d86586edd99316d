// The used bytes of a run's files as pieces, numbered through all files in the manifest's order: as
// peers that lack the data fetch it, and those that have it give it.
//   Pieces:    kDataPieceBytes of a file each, its last one shorter; none reaches into the next.
//   Thread:    immutable. Errors: none. Bounds: kDataPiecesMax; a run with more is not fetched.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/data_manifest.h"
#include "engine/data/token_dataset.h"

namespace swarmline {

inline constexpr std::uint32_t kDataPiecesMax = 1U << 20;  // a tebibyte

class DataPieces {
 public:
  explicit DataPieces(const DataManifest& manifest);

  std::uint32_t count() const { return first_.back(); }
  bool too_many() const { return too_many_; }  // then it counts none

  struct Place {
    std::uint32_t file = 0;  // in the manifest's order
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  Place place(std::uint32_t piece) const;  // < count()
  // Which has that byte of the file.
  std::uint32_t at(std::uint32_t file, std::uint64_t offset) const {
    return first_[file] + static_cast<std::uint32_t>(offset / kDataPieceBytes);
  }
  // Adds those that have these bytes.
  void list(const ByteRange& range, std::vector<std::uint32_t>& pieces) const;

 private:
  std::vector<std::uint64_t> used_;   // bytes of each file
  std::vector<std::uint32_t> first_;  // piece of each file, and one past the last
  bool too_many_ = false;
};

}  // namespace swarmline
