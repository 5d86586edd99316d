// The logarithm of a sum of exponentials, one term or part at a time, without overflow: for CUDA
// and for tests on the host.
//   Not finite: nor is it with a NaN or +infinity among the terms; -infinity adds nothing.
//   Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018.
#pragma once

#include <cmath>

#include "kernels/element.h"

namespace swarmline {

struct LogSum {
  float largest = -INFINITY;
  float sum = 0;  // of exp(term - largest)
};

SWARMLINE_ELEMENT LogSum merged(const LogSum& a, const LogSum& b) {
  const LogSum& high = b.largest > a.largest ? b : a;
  const LogSum& low = b.largest > a.largest ? a : b;
  if (low.largest == -INFINITY && low.sum == 0) return high;
  return {high.largest, high.sum + low.sum * expf(low.largest - high.largest)};
}
SWARMLINE_ELEMENT LogSum with_term(const LogSum& sum, float term) {
  return term == -INFINITY ? sum : merged(sum, {term, 1});
}
SWARMLINE_ELEMENT float value_of(const LogSum& sum) {
  return sum.largest + logf(sum.sum);
}

}  // namespace swarmline
