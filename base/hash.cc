#include "base/hash.h"

#include <xxhash.h>

#include <fmt/format.h>

#include "base/rng.h"

namespace swarmline {

std::uint64_t xxh3(BytesView bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
std::uint64_t xxh3(BytesView bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}
std::string hex64(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}
void RollingHash::add(std::uint64_t word) {
  state_ = mix(state_, word);
}

}  // namespace swarmline
