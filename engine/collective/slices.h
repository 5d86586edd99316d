// How much of the vector each member of an all-reduce reduces.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace swarmline {

// Weights (summing to 1) that minimise the slowest member's time max_i (1 + (n - 2) w_i) / b_i over
// members with b_i > 0: w_i = max(0, (xi b_i - 1) / (n - 2)), xi found by bisection (DeDLOC's
// simplified program, Diskin et al., NeurIPS 2021).
//   `bandwidths`: any common unit, >= 0, finite; 0: unknown or cannot reduce, gets no slice.
//   One or two members: equal weights over those with bandwidth (any split costs the same).
//   Errors: kIncompatible when none has bandwidth, or one is negative or not finite.
Result<std::vector<double>> water_filling(std::span<const double> bandwidths);

// The cost the weights above minimise: time of the slowest member per element, in elements over
// bandwidth.
double reduce_cost(std::span<const double> bandwidths, std::span<const double> weights);

// n + 1 ascending bounds, 0 .. elements, slices proportional to the weights; inner bounds are
// multiples of `alignment` (elements, >= 1), so that slices start on cache lines and codec blocks.
std::vector<std::uint64_t> slice_bounds(std::uint64_t elements, std::span<const double> weights,
                                        std::uint64_t alignment);

// Elements: whole codec blocks (the largest) and cache lines. Slices that are cut there are encoded
// alike, so that a sum's bits don't hang on where they are cut.
inline constexpr std::uint64_t kSliceAlignment = 4096;

// The same for slices as equal as kSliceAlignment lets them be.
std::vector<std::uint64_t> equal_slice_bounds(std::uint64_t elements, std::uint32_t ranks);

}  // namespace swarmline
