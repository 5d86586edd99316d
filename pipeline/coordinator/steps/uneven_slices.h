// Where the slices of an all-reduce end, so that its slowest link is done soonest. Pure.
//   Units:   `elements` of the group's vector; bandwidths in bits per second by rank, 0: unknown,
//            which counts as the median of those that are known.
//   Returns: one end per rank, multiples of kSliceAlignment but for the last, which is `elements`.
//            Empty: equal slices, since nothing is known, or that gains less than kSlicesWorthIt,
//            or there are but two, between whom the same bytes travel however they are cut.
//   Bounds:  what one says counts for at most kBandwidthFactorMax times the median, and no less
//            than its inverse: a lie takes a slice as a slow link would, and no more.
//   Source:  DeDLOC's program (engine/collective/slices.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace swarmline {

inline constexpr double kSlicesWorthIt = 0.05;  // of the time that equal slices take
inline constexpr double kBandwidthFactorMax = 16;

std::vector<std::uint64_t> uneven_slice_ends(std::uint64_t elements,
                                             std::span<const double> bandwidths);

}  // namespace swarmline
