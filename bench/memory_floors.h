// What the memory of this machine allows, to measure memory-bound kernels against: one thread, the
// widest stores and loads of this CPU. Buffers are 64-byte aligned, sizes multiples of 4096.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swarmline::bench {

// Reads everything; the result keeps compilers honest.
std::uint64_t read_only(const void* from, std::size_t bytes);
// Writes `bytes` past the caches, each byte of `from` widened to 4 (to 2) bytes.
void widen_by_4(const std::uint8_t* from, void* to, std::size_t bytes);
void widen_by_2(const std::uint8_t* from, void* to, std::size_t bytes);

}  // namespace swarmline::bench
