// Which part of a mixture a position of a run draws from: a pure function of (seed, position), so
// that nothing is saved.
//   What:    every kMixtureParts positions hold exact numbers of each part's draws, in proportion
//            to the weights and in a seeded order of their own; `turn` counts a part's draws from
//            the run's beginning.
//   Thread:  immutable. Bounds: a weight below 1 / kMixtureParts of the sum counts as that much.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace swarmline {

inline constexpr std::uint32_t kMixtureParts = 10'000;

class Mixture {
 public:
  // At least one weight, each above 0, at most kMixtureParts of them.
  Mixture(std::span<const double> weights, std::uint64_t seed);

  struct Draw {
    std::uint32_t part = 0;
    std::uint64_t turn = 0;
    bool operator==(const Draw&) const = default;
  };
  Draw at(std::uint64_t position) const;
  // Of kMixtureParts draws.
  std::uint32_t share(std::uint32_t part) const { return ends_[part] - begin(part); }

 private:
  std::uint32_t begin(std::uint32_t part) const { return part == 0 ? 0 : ends_[part - 1]; }

  std::vector<std::uint32_t> ends_;  // of each part, among kMixtureParts slots
  std::uint64_t seed_;
};

}  // namespace swarmline
