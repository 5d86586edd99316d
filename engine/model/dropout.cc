#include "engine/model/dropout.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace swarmline {
namespace {

constexpr std::size_t kLanes = kDropoutGrain / 4;  // Philox blocks computed side by side
using Lanes = std::array<std::uint32_t, kLanes>;

// philox4x32 for kLanes consecutive block numbers, in a shape that compilers vectorise.
void philox_blocks(std::uint64_t first_block, const DropoutMask& mask, std::array<Lanes, 4>& c) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    c[0][i] = static_cast<std::uint32_t>(first_block + i);
    c[1][i] = static_cast<std::uint32_t>((first_block + i) >> 32);
    c[2][i] = mask.layer;
    c[3][i] = static_cast<std::uint32_t>(mask.site);
  }
  std::uint32_t k0 = mask.key[0];
  std::uint32_t k1 = mask.key[1];
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c[0][i];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c[2][i];
      c[0][i] = static_cast<std::uint32_t>(p1 >> 32) ^ c[1][i] ^ k0;
      c[1][i] = static_cast<std::uint32_t>(p1);
      c[2][i] = static_cast<std::uint32_t>(p0 >> 32) ^ c[3][i] ^ k1;
      c[3][i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
}

template <typename T>
void apply(const DropoutMask& mask, std::size_t first, std::size_t n, const T* in, T* out) {
  SWARMLINE_CHECK(first % kDropoutGrain == 0);
  SWARMLINE_CHECK(mask.probability >= 0 && mask.probability < 1);
  const auto threshold = static_cast<std::uint32_t>(mask.probability * 0x1.0p32);
  const T scale = static_cast<T>(1.0 / (1.0 - mask.probability));
  std::array<Lanes, 4> draws;
  std::array<T, kDropoutGrain> factors;
  for (std::size_t done = 0; done < n; done += kDropoutGrain) {
    philox_blocks((first + done) / 4, mask, draws);
    for (std::size_t i = 0; i < kLanes; ++i) {
      for (std::size_t word = 0; word < 4; ++word) {
        factors[4 * i + word] = draws[word][i] < threshold ? T{0} : scale;
      }
    }
    const std::size_t count = std::min(kDropoutGrain, n - done);
    for (std::size_t i = 0; i < count; ++i) out[done + i] = in[done + i] * factors[i];
  }
}

}  // namespace

PhiloxKey dropout_key(std::uint64_t seed, const MicrobatchId& microbatch) {
  const std::uint64_t run = mix(seed, hash_name("dropout"));
  const std::uint64_t key = mix(mix(run, microbatch.phase.step), microbatch.index);
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

void apply_dropout(const DropoutMask& mask, std::size_t first, std::size_t n, const float* in,
                   float* out) {
  apply(mask, first, n, in, out);
}

void apply_dropout(const DropoutMask& mask, std::size_t first, std::size_t n, const double* in,
                   double* out) {
  apply(mask, first, n, in, out);
}

}  // namespace swarmline
