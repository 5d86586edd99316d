// dyn8's codes as a table. Magnitudes fall into cells by their exponent and the first bits of their
// mantissa, as many bits as it takes for no cell to have more than one place where the code goes up
// by one. A cell's word, added to the magnitude's bits moved so that the cell ends at 2^24, has the
// code above 2^24: the part of the magnitude below the cell's bits carries into it or does not.
// Made from the map's own arithmetic, so that the codes are dyn8_step()'s.
#pragma once

#include <cstdint>

#include "kernels/cuda/vector_io.cuh"
#include "kernels/format/dyn8.h"

namespace swarmline::kernels::cuda {

template <bool kSigned>
struct alignas(16) Dyn8Cells {
  static constexpr unsigned kShift = kSigned ? 17 : 16;            // bits of a float below a cell's
  static constexpr float kLowest = kSigned ? 0x1p-22F : 0x1p-23F;  // below the first threshold
  static constexpr std::uint32_t kFirst = __builtin_bit_cast(std::uint32_t, kLowest) >> kShift;
  // No magnitude passes 1 by 2^-7, not even where the scale is the largest one as bf16.
  static constexpr std::uint32_t kLast = __builtin_bit_cast(std::uint32_t, 1.0F) >> kShift;
  static constexpr unsigned kCount = (kLast - kFirst + 4) / 4 * 4;
  std::uint32_t word[kCount];

  // Of a magnitude of at least kLowest: the code of a positive number in the upper 8 bits.
  SWARMLINE_DEVICE std::uint32_t above(std::uint32_t magnitude) const {
    return (magnitude << (24 - kShift)) + word[(magnitude >> kShift) - kFirst];
  }
};

constexpr std::uint32_t dyn8_step_of(const Dyn8Map& map, std::uint32_t magnitude) {
  const auto a = __builtin_bit_cast(float, magnitude);
  int decade = 0;
  for (int d = 1; d < kDyn8Decades; ++d) decade = a >= map.threshold[d] ? d : decade;
  const float product = a * map.slope[decade];
  const float f = product + map.offset[decade];
  return static_cast<std::uint32_t>(f < map.top[decade] ? f : map.top[decade]);
}
template <bool kSigned>
constexpr std::uint32_t dyn8_cell(std::uint32_t cell) {
  constexpr const Dyn8Map& kMap = kSigned ? kDyn8SignedMap : kDyn8UnsignedMap;
  constexpr std::uint32_t kZero = kSigned ? 127U : ~0U;  // the code is this and the step
  constexpr unsigned kShift = Dyn8Cells<kSigned>::kShift;
  const std::uint32_t begin = cell << kShift;
  std::uint32_t stays = begin;                       // a magnitude with the first one's step
  std::uint32_t steps = begin + (1U << kShift) - 1;  // the last one; a magnitude with another
  const std::uint32_t step = dyn8_step_of(kMap, begin);
  const std::uint32_t up = dyn8_step_of(kMap, steps) - step;
  if (up > 1) throw "two steps in one cell";
  while (up == 1 && steps - stays > 1) {
    const std::uint32_t middle = stays + (steps - stays) / 2;
    (dyn8_step_of(kMap, middle) == step ? stays : steps) = middle;
  }
  const std::uint32_t carried = up == 1 ? (begin + (1U << kShift) - steps) << (24 - kShift) : 0;
  return ((step + kZero - cell) << 24) + carried;
}
template <bool kSigned>
constexpr Dyn8Cells<kSigned> dyn8_cells() {
  using Cells = Dyn8Cells<kSigned>;
  Cells cells = {};
  for (std::uint32_t cell = Cells::kFirst; cell <= Cells::kLast; ++cell) {
    cells.word[cell - Cells::kFirst] = dyn8_cell<kSigned>(cell);
  }
  return cells;
}

}  // namespace swarmline::kernels::cuda
