// What stands where among values in order.
//   Errors: CHECKed: n below the number of values. Bounds: linear time, on a copy of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"

namespace swarmline {

// n = 0: the least.
template <typename T>
T nth_smallest(std::vector<T> values, std::size_t n) {
  SWARMLINE_CHECK(n < values.size());
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(n);
  std::ranges::nth_element(values, at);
  return *at;
}

// Of an even number the upper one of the two in the middle.
template <typename T>
T median(std::vector<T> values) {
  const std::size_t middle = values.size() / 2;
  return nth_smallest(std::move(values), middle);
}

}  // namespace swarmline
