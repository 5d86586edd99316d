// Dropout without state: whether an element is kept is a pure function of (seed, step, index,
// layer, site, element), so the stage cut, the attempt, a recomputation and the number of threads
// cannot change it. No mask is stored: backward draws it again.
//   Shapes: n elements in row-major order of the microbatch's tensor; element e takes word e % 4 of
//   Philox block e / 4. Thread: pure; parts of one tensor may be filled by several threads (`first`
//   is the part's first element). Source: Srivastava et al., JMLR 2014 (inverted scaling);
//   Philox4x32-10, Salmon et al., SC 2011.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/rng.h"

namespace swarmline {

enum class DropoutSite : std::uint32_t { kEmbedding = 0, kAttention = 1, kMlp = 2 };

// The key of one microbatch's masks, whichever attempt computes it.
PhiloxKey dropout_key(std::uint64_t seed, const MicrobatchId& microbatch);

struct DropoutMask {
  PhiloxKey key{};
  std::uint32_t layer = 0;  // of the whole model; 0 for kEmbedding
  DropoutSite site = DropoutSite::kEmbedding;
  double probability = 0;  // of being dropped, [0, 1)
};

// Elements [first, first + n) of the mask: out[i] = in[i] / (1 - probability) where kept, 0 where
// dropped. `first` is a multiple of kDropoutGrain. in == out is allowed.
inline constexpr std::size_t kDropoutGrain = 32;
void apply_dropout(const DropoutMask& mask, std::size_t first, std::size_t n, const float* in,
                   float* out);
void apply_dropout(const DropoutMask& mask, std::size_t first, std::size_t n, const double* in,
                   double* out);

}  // namespace swarmline
