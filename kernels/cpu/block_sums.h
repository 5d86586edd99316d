// The order documented at kernels::sum_of_squares, for sums that arrive one block at a time.
// Internal linkage, for the reason element.h gives.
#pragma once

#include <cstddef>

#include "kernels/kernels.h"

namespace swarmline::kernels {
namespace {

constexpr int kSumLevels = 4;  // kSumBlock^5 elements are more than memory can hold

[[gnu::always_inline]] inline double fold(double* lanes) {
  for (std::size_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

class BlockSums {
 public:
  void add(double block_sum) { add_at(0, block_sum); }
  double finish() {
    // An unfinished group is folded and handed up; a level of one sum hands it up unchanged (zeros
    // are added).
    for (int level = 0; level + 1 < kSumLevels; ++level) {
      if (count_[level] != 0) hand_up(level);
    }
    return fold(lanes_[kSumLevels - 1]);
  }

 private:
  void add_at(int level, double sum) {
    lanes_[level][count_[level] % kSumLanes] += sum;
    if (++count_[level] == kSumBlock && level + 1 < kSumLevels) hand_up(level);
  }
  void hand_up(int level) {
    const double sum = fold(lanes_[level]);
    for (double& lane : lanes_[level]) lane = 0;
    count_[level] = 0;
    add_at(level + 1, sum);
  }

  double lanes_[kSumLevels][kSumLanes] = {};
  std::size_t count_[kSumLevels] = {};
};

}  // namespace
}  // namespace swarmline::kernels
