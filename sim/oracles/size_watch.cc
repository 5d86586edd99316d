#include "sim/oracles/size_watch.h"

#include <algorithm>

#include <fmt/format.h>

namespace swarmline {

std::optional<std::string> SizeWatch::sample(std::string_view whose,
                                             std::span<const NamedSize> sizes) {
  std::optional<std::string> wrong;
  for (const NamedSize& one : sizes) {
    std::uint64_t& peak = peaks_[one.name];
    peak = std::max(peak, one.size);
    if (one.size > one.bound && !wrong)
      wrong = fmt::format("{} of {} is {}, its bound is {}", one.name, whose, one.size, one.bound);
  }
  return wrong;
}

}  // namespace swarmline
