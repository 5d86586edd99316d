#include "base/hash.h"

#include <memory>
#include <new>
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // after it: the widest instructions of this machine, chosen once
#endif

#include <fmt/format.h>

#include "base/rng.h"

namespace swarmline {

std::uint64_t xxh3(BytesView bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
std::uint64_t xxh3(BytesView bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}
std::uint64_t xxh3_of_both(BytesView first, BytesView second) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), first.data(), first.size());
  XXH3_64bits_update(state.get(), second.data(), second.size());
  return XXH3_64bits_digest(state.get());
}
std::string hex64(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}
void RollingHash::add(std::uint64_t word) {
  state_ = mix(state_, word);
}

}  // namespace swarmline
