// What the planner of slices makes of the cases that it is given: slices_oracle.py compares it with
// a solver of linear programs.
//   In:  lines of a number of elements and each member's bandwidth, by spaces.
//   Out: a line of JSON for its constants, then one a case.
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/collective/slices.h"
#include "pipeline/coordinator/steps/uneven_slices.h"

namespace swarmline {
namespace {

std::string planned(std::uint64_t elements, const std::vector<double>& bandwidths) {
  const auto weights = water_filling(bandwidths);
  SWARMLINE_CHECK_MSG(weights.has_value(), weights.error().what);
  return fmt::format(R"({{"weights": [{}], "cost": {}, "bounds": [{}], "run_ends": [{}]}})",
                     fmt::join(*weights, ", "), reduce_cost(bandwidths, *weights),
                     fmt::join(slice_bounds(elements, *weights, 1), ", "),
                     fmt::join(uneven_slice_ends(elements, bandwidths), ", "));
}

void plan_all() {
  fmt::print(R"({{"alignment": {}, "worth_it": {}, "factor_max": {}}})"
             "\n",
             kSliceAlignment, kSlicesWorthIt, kBandwidthFactorMax);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::uint64_t elements = 0;
    words >> elements;
    std::vector<double> bandwidths;
    for (double b = 0; words >> b;) bandwidths.push_back(b);
    fmt::print("{}\n", planned(elements, bandwidths));
  }
}

}  // namespace
}  // namespace swarmline

int main() {
  swarmline::plan_all();
}
