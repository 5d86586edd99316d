// The digest of a stage's state and of averages: what members compare. A device makes it from many
// pieces at once, and eight bytes of it leave that.
//   Definition: XXH3 (64 bits) of each piece of kDigestPiece, the last of which may be shorter, and
//               empty where there is nothing; the digest is XXH3 of these hashes in order, with the
//               number of all bytes behind them, as little-endian words. What is hashed has zeros
//               behind it up to a whole block, and to two at least (kernels/format/xxh3.h).
//   Shapes:     any number of bytes, any alignment; 8 bytes for CUDA's twin (kernels.cuh).
//   Memory:     8 bytes a piece while it is made.
//   Thread:     any. Errors: none.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace swarmline::kernels {

inline constexpr std::uint64_t kDigestPiece = std::uint64_t{1} << 20;

std::uint64_t digest(BytesView bytes);

}  // namespace swarmline::kernels
