// Random draws of stochastic rounding: Philox4x32-10 (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011), a block cipher of a counter, so that any element's draw can be had
// without those before it, on any device, in any number of pieces.
//   Key:      {low 32 bits of seed, high 32 bits of seed}.
//   Counter:  {position / 8 mod 2^32, stream[0], stream[1], stream[2]}, where position =
//             first_element + i of an element in the coded vector (h8 and h4: after the rotation).
//   Draw:     16 bits: those from 16 * (position % 8) of the 128 that come out, word 0 lowest; so
//             word (position % 8) / 2, its low half if position is even.
//   Rounding: q = floor(y + u), u = draw / 65536 in [0, 1): one fp32 addition, rounded to nearest
//             even, then the floor, then clamped to the format's range of codes. With y = code + f
//             the code is one more with probability f, but for 2^-16 and the rounding of the sum.
#pragma once

#include <cstdint>

#include "kernels/element.h"

namespace swarmline::kernels {

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr std::uint32_t kPhiloxKeyStep0 = 0x9E3779B9;
inline constexpr std::uint32_t kPhiloxKeyStep1 = 0xBB67AE85;
inline constexpr std::uint32_t kPhiloxDraws = 8;  // of one counter
inline constexpr float kDrawUnit = 0x1p-16F;

struct PhiloxWords {
  std::uint32_t word[4];
};

SWARMLINE_ELEMENT PhiloxWords philox(PhiloxWords counter, std::uint32_t key0, std::uint32_t key1) {
  PhiloxWords c = counter;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * c.word[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * c.word[2];
    c = {{static_cast<std::uint32_t>(product1 >> 32) ^ c.word[1] ^ key0,
          static_cast<std::uint32_t>(product1),
          static_cast<std::uint32_t>(product0 >> 32) ^ c.word[3] ^ key1,
          static_cast<std::uint32_t>(product0)}};
    key0 += kPhiloxKeyStep0;
    key1 += kPhiloxKeyStep1;
  }
  return c;
}

// The eight draws of the positions 8 * group .. 8 * group + 7.
SWARMLINE_ELEMENT PhiloxWords draws_of_group(std::uint64_t seed, const std::uint32_t* stream,
                                             std::uint64_t group) {
  const PhiloxWords counter = {
      {static_cast<std::uint32_t>(group), stream[0], stream[1], stream[2]}};
  return philox(counter, static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
}
SWARMLINE_ELEMENT std::uint32_t draw_of(const PhiloxWords& words, std::uint64_t position) {
  const std::uint32_t word = words.word[(position % kPhiloxDraws) / 2];
  return position % 2 == 0 ? word & 0xFFFFU : word >> 16;
}

// floor(y + draw / 65536) for |y| < 2^22; 0 for NaN, which is asked for where the code is thrown
// away.
SWARMLINE_ELEMENT std::int32_t floor_with_draw(float y, std::uint32_t draw) {
  const float sum = y + static_cast<float>(static_cast<std::int32_t>(draw)) * kDrawUnit;
  const auto truncated = static_cast<std::int32_t>(sum == sum ? sum : 0.0F);
  return truncated - (static_cast<float>(truncated) > sum ? 1 : 0);
}

}  // namespace swarmline::kernels
