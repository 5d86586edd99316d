#include "kernels/digest.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/hash.h"
#include "kernels/format/xxh3.h"

namespace swarmline::kernels {
namespace {

// Copies the last bytes alone: two blocks at most.
std::uint64_t padded_xxh3(BytesView bytes) {
  const std::size_t padded = xxh3::padded(bytes.size());
  if (padded == bytes.size()) return swarmline::xxh3(bytes);
  const std::size_t whole = bytes.size() / xxh3::kBlockBytes * xxh3::kBlockBytes;
  std::array<std::byte, xxh3::kBytesMin> end{};
  std::ranges::copy(bytes.subspan(whole), end.begin());
  return xxh3_of_both(bytes.first(whole), BytesView(end).first(padded - whole));
}

}  // namespace

std::uint64_t digest(BytesView bytes) {
  std::vector<std::uint64_t> words;
  words.reserve(bytes.size() / kDigestPiece + 2);
  for (BytesView rest = bytes; words.empty() || !rest.empty();) {
    const BytesView piece = rest.first(std::min<std::size_t>(kDigestPiece, rest.size()));
    words.push_back(padded_xxh3(piece));
    rest = rest.subspan(piece.size());
  }
  words.push_back(bytes.size());
  return padded_xxh3(std::as_bytes(std::span(words)));
}

}  // namespace swarmline::kernels
