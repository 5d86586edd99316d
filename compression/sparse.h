// topk: the elements of largest magnitude of one tile. Positions are u16, ascending; values fp32.
//   Selection: exact and the same everywhere: by the bits of the magnitude (NaN above infinity), of
//              equals the lower index.
//   Thread: any, stateless. Errors: scatter_sparse() returns nothing when positions are not
//           ascending or out of range; the output is then as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/dtype.h"

namespace swarmline {

// `kept` of `n` values, 1 <= kept <= n <= 65536. Returns whether a value that was kept is not
// finite.
bool select_largest(const float* values, std::size_t n, std::size_t kept, std::byte* positions,
                    std::byte* kept_values);
// Whether positions ascend and lie in 0..n-1.
bool positions_ascend(const std::byte* positions, std::size_t kept, std::size_t n);
// Fills n elements of `target`. Returns whether a value is not finite there.
std::optional<bool> scatter_sparse(const std::byte* positions, const std::byte* kept_values,
                                   std::size_t kept, std::size_t n, DType target,
                                   std::byte* values);

}  // namespace swarmline
