// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). A draw is a pure function
// of (key, counter), so dropout masks, stochastic rounding, initialisation and data order depend on
// names, not on the order of calls.
//   Thread: philox4x32 is pure; an Rng is owned by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace swarmline {

using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxCounter = std::array<std::uint32_t, 4>;
std::array<std::uint32_t, 4> philox4x32(PhiloxCounter counter, PhiloxKey key);

// Mixes 64-bit words into one (xxHash's avalanche); used to make keys from (seed, step, ...).
std::uint64_t mix(std::uint64_t a, std::uint64_t b);
std::uint64_t hash_name(std::string_view name);
// [0, 1) with 24 bits, exact in float.
constexpr float unit_float(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1.0p-24F;
}

// A stream of numbers with its own distributions (std:: ones differ between libraries).
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : seed_(seed) {}
  // An independent stream; drawing from one never shifts another.
  Rng split(std::string_view name) const { return Rng(mix(seed_, hash_name(name))); }
  Rng split(std::uint64_t number) const { return Rng(mix(seed_ ^ 0x9E3779B97F4A7C15ULL, number)); }

  std::uint32_t next_u32();
  std::uint64_t next_u64();
  std::uint64_t below(std::uint64_t bound);  // uniform in [0, bound), unbiased; bound > 0
  double uniform();                          // [0, 1), 53 bits
  double exponential(double mean);
  double normal();  // Box-Muller
  std::uint64_t seed() const { return seed_; }

 private:
  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
  std::array<std::uint32_t, 4> block_{};
  int left_ = 0;
};

}  // namespace swarmline
