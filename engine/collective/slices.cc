#include "engine/collective/slices.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace swarmline {
namespace {

constexpr int kBisections = 200;  // an interval of doubles is down to one ulp before that

double weight_at(double xi, double bandwidth, double shared) {
  return bandwidth > 0 ? std::max(0.0, (xi * bandwidth - 1) / shared) : 0.0;
}

double sum_at(double xi, std::span<const double> bandwidths, double shared) {
  double sum = 0;
  for (const double b : bandwidths) sum += weight_at(xi, b, shared);
  return sum;
}

std::vector<double> equal_weights(std::span<const double> bandwidths) {
  const auto able =
      std::count_if(bandwidths.begin(), bandwidths.end(), [](double b) { return b > 0; });
  std::vector<double> weights;
  for (const double b : bandwidths) weights.push_back(b > 0 ? 1.0 / static_cast<double>(able) : 0);
  return weights;
}

}  // namespace

Result<std::vector<double>> water_filling(std::span<const double> bandwidths) {
  double lowest = 0;
  double highest = 0;
  for (const double b : bandwidths) {
    if (!std::isfinite(b) || b < 0) {
      return fail(ErrorCode::kIncompatible, "a member's bandwidth is negative or not finite");
    }
    highest = std::max(highest, b);
    if (b > 0 && (lowest == 0 || b < lowest)) lowest = b;
  }
  if (highest == 0) {
    return fail(ErrorCode::kIncompatible, "no member of the group has bandwidth to reduce");
  }
  if (bandwidths.size() <= 2) return equal_weights(bandwidths);
  const auto shared = static_cast<double>(bandwidths.size() - 2);
  double low = 1 / highest;             // nobody gets anything
  double high = (1 + shared) / lowest;  // everybody able gets all
  for (int i = 0; i < kBisections; ++i) {
    const double xi = low + (high - low) / 2;
    (sum_at(xi, bandwidths, shared) < 1 ? low : high) = xi;
  }
  const double sum = sum_at(high, bandwidths, shared);
  std::vector<double> weights;
  for (const double b : bandwidths) weights.push_back(weight_at(high, b, shared) / sum);
  return weights;
}

double reduce_cost(std::span<const double> bandwidths, std::span<const double> weights) {
  SWARMLINE_CHECK(bandwidths.size() == weights.size());
  const double shared = static_cast<double>(bandwidths.size()) - 2;
  double cost = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (bandwidths[i] > 0) cost = std::max(cost, (1 + shared * weights[i]) / bandwidths[i]);
  }
  return cost;
}

std::vector<std::uint64_t> slice_bounds(std::uint64_t elements, std::span<const double> weights,
                                        std::uint64_t alignment) {
  SWARMLINE_CHECK(!weights.empty() && alignment >= 1);
  double total = 0;
  std::size_t last = 0;  // the last member with a slice takes what rounding leaves
  for (std::size_t i = 0; i < weights.size(); ++i) {
    SWARMLINE_CHECK(std::isfinite(weights[i]) && weights[i] >= 0);
    total += weights[i];
    if (weights[i] > 0) last = i;
  }
  SWARMLINE_CHECK(total > 0);
  std::vector<std::uint64_t> bounds{0};
  double before = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    before += weights[i];
    const double ideal = static_cast<double>(elements) * (before / total);
    const double units = std::floor(ideal / static_cast<double>(alignment) + 0.5);
    const std::uint64_t bound = static_cast<std::uint64_t>(units) * alignment;
    bounds.push_back(i >= last ? elements : std::min(std::max(bound, bounds.back()), elements));
  }
  return bounds;
}

std::vector<std::uint64_t> equal_slice_bounds(std::uint64_t elements, std::uint32_t ranks) {
  const std::vector<double> equal(ranks, 1.0 / static_cast<double>(ranks));
  return slice_bounds(elements, equal, kSliceAlignment);
}

}  // namespace swarmline
