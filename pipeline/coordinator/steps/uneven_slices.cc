#include "pipeline/coordinator/steps/uneven_slices.h"

#include <algorithm>

#include "base/marks.h"
#include "base/order_statistics.h"
#include "engine/collective/slices.h"

namespace swarmline {

std::vector<std::uint64_t> uneven_slice_ends(std::uint64_t elements,
                                             std::span<const double> bandwidths) {
  std::vector<double> known;
  for (const double b : bandwidths)
    if (b > 0) known.push_back(b);
  if (known.empty() || bandwidths.size() <= 2) return {};
  const double usual = median(known);
  std::vector<double> counted;
  for (const double b : bandwidths)
    counted.push_back(
        b > 0 ? std::clamp(b, usual / kBandwidthFactorMax, usual * kBandwidthFactorMax) : usual);
  const auto weights = water_filling(counted);
  const std::vector<double> equal(counted.size(), 1 / static_cast<double>(counted.size()));
  if (!weights ||
      reduce_cost(counted, *weights) > (1 - kSlicesWorthIt) * reduce_cost(counted, equal))
    return {};
  SWARMLINE_MARK("uneven_slices.cut");
  std::vector<std::uint64_t> ends = slice_bounds(elements, *weights, kSliceAlignment);
  ends.erase(ends.begin());
  return ends;
}

}  // namespace swarmline
