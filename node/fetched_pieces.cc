#include "node/fetched_pieces.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace swarmline {

Result<void> FetchedPieces::read(const DataPieces& pieces, const ByteRange& range,
                                 std::span<std::byte> out) const {
  std::uint64_t offset = range.offset;
  while (!out.empty()) {
    const std::uint32_t number = pieces.at(range.file, offset);
    const auto piece = in_use_.find(number);
    const std::uint64_t within = offset % kDataPieceBytes;
    if (piece == in_use_.end() || piece->second->bytes().size() <= within)
      return fail(ErrorCode::kNotFound,
                  fmt::format("piece {} of the run's data is read and is not here", number));
    const BytesView bytes = piece->second->bytes().subspan(within);
    const std::size_t count = std::min(bytes.size(), out.size());
    std::memcpy(out.data(), bytes.data(), count);
    out = out.subspan(count);
    offset += count;
  }
  return {};
}

}  // namespace swarmline
