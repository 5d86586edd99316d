#include "base/rng.h"

#include <cmath>
#include <numbers>
#include <xxhash.h>

namespace swarmline {

std::array<std::uint32_t, 4> philox4x32(PhiloxCounter c, PhiloxKey k) {
  constexpr std::uint32_t kMul0 = 0xD2511F53U, kMul1 = 0xCD9E8D57U;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9U, kWeyl1 = 0xBB67AE85U;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMul0} * c[0];
    const std::uint64_t p1 = std::uint64_t{kMul1} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k[0] += kWeyl0;
    k[1] += kWeyl1;
  }
  return c;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t words[2] = {a, b};
  return XXH3_64bits(words, sizeof(words));
}

std::uint64_t hash_name(std::string_view name) {
  return XXH3_64bits(name.data(), name.size());
}

std::uint32_t Rng::next_u32() {
  if (left_ == 0) {
    const std::uint64_t n = counter_++;
    block_ =
        philox4x32({static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32), 0, 0},
                   {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    left_ = 4;
  }
  return block_[static_cast<std::size_t>(4 - left_--)];
}

std::uint64_t Rng::next_u64() {
  const std::uint64_t high = next_u32();
  return high << 32 | next_u32();
}

std::uint64_t Rng::below(std::uint64_t bound) {
  const std::uint64_t limit = ~std::uint64_t{0} - (~std::uint64_t{0} % bound + 1) % bound;
  std::uint64_t draw = next_u64();
  while (draw > limit) draw = next_u64();
  return draw % bound;
}

double Rng::uniform() {
  return static_cast<double>(next_u64() >> 11) * 0x1.0p-53;
}

double Rng::exponential(double mean) {
  return -mean * std::log1p(-uniform());
}

double Rng::normal() {
  const double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace swarmline
