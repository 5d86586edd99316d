#include "engine/data/data_pieces.h"

#include <algorithm>

#include "base/check.h"

namespace swarmline {

DataPieces::DataPieces(const DataManifest& manifest) : first_{0} {
  std::uint64_t pieces = 0;
  for (const DataFile& file : manifest.files)
    pieces += file.used / kDataPieceBytes + (file.used % kDataPieceBytes > 0 ? 1 : 0);
  too_many_ = pieces > kDataPiecesMax;
  if (too_many_) return;
  for (const DataFile& file : manifest.files) {
    used_.push_back(file.used);
    first_.push_back(first_.back() + static_cast<std::uint32_t>((file.used + kDataPieceBytes - 1) /
                                                                kDataPieceBytes));
  }
}

DataPieces::Place DataPieces::place(std::uint32_t piece) const {
  SWARMLINE_CHECK(piece < count());
  const auto after = std::ranges::upper_bound(first_, piece);
  const auto file = static_cast<std::uint32_t>(after - first_.begin() - 1);
  const std::uint64_t offset = (piece - first_[file]) * kDataPieceBytes;
  return {.file = file,
          .offset = offset,
          .bytes = std::min<std::uint64_t>(kDataPieceBytes, used_[file] - offset)};
}

void DataPieces::list(const ByteRange& range, std::vector<std::uint32_t>& pieces) const {
  if (range.bytes == 0) return;
  const std::uint32_t last = at(range.file, range.offset + range.bytes - 1);
  for (std::uint32_t piece = at(range.file, range.offset); piece <= last; ++piece)
    pieces.push_back(piece);
}

}  // namespace swarmline
