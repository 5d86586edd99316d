// Whether what grows stays within its bound: at each sample, and at the end of a run.
//   Thread: any. Bounds: one entry a name.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "pipeline/protocol/insight.h"

namespace swarmline {

class SizeWatch {
 public:
  // A sentence about the first that is beyond its bound.
  std::optional<std::string> sample(std::string_view whose, std::span<const NamedSize> sizes);
  // The largest seen, by name.
  const std::map<std::string_view, std::uint64_t>& peaks() const { return peaks_; }
  // ... since it was asked last.
  std::map<std::string_view, std::uint64_t> take_peaks() { return std::exchange(peaks_, {}); }

 private:
  std::map<std::string_view, std::uint64_t> peaks_;
};

}  // namespace swarmline
