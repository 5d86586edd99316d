// Numbers as people write sizes and rates: 16G, 1.5M, 4096.
//   Units: K, M, G and T, of either case, stand for powers of `step` (1024 or 1000).
//   Thread: any. Errors: none for what is no such number, is below zero or not finite.
#pragma once

#include <optional>
#include <string_view>

namespace swarmline {

std::optional<double> number_with_suffix(std::string_view text, double step);

}  // namespace swarmline
