#include "engine/collective/all_reduce.h"

#include <algorithm>
#include <utility>

namespace swarmline {

std::uint64_t ChunkSend::bytes() const {
  std::uint64_t sum = 0;
  for (const SharedBytes& piece : wire) sum += piece.size();
  return sum;
}

SharedBytes ChunkSend::whole() const {
  if (wire.size() == 1) return wire.front();
  Buffer all(bytes());
  std::byte* at = all.data();
  for (const SharedBytes& piece : wire) at = std::ranges::copy(piece.view(), at).out;
  return SharedBytes(std::move(all));
}

}  // namespace swarmline
