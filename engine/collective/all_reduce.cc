#include "engine/collective/all_reduce.h"

#include <utility>

#include "base/byte_ops.h"

namespace swarmline {

std::uint64_t ChunkSend::bytes() const {
  std::uint64_t sum = 0;
  for (const SharedBytes& piece : wire) sum += piece.size();
  return sum;
}

SharedBytes ChunkSend::whole() const {
  if (wire.size() == 1) return wire.front();
  Buffer all(bytes());
  MutableBytes at = all.bytes();
  for (const SharedBytes& piece : wire) at = copy_bytes(piece.view(), at);
  return SharedBytes(std::move(all));
}

}  // namespace swarmline
