// Which instruction set the kernels of quantize.h run on: the widest that this CPU has, unless a
// test forces another. Highway's targets, and AVX-512 VBMI, which has byte-wide look-ups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace swarmline::kernels {

struct QuantPath {
  const char* name;
  std::int64_t highway_target;
  bool vbmi;
};

// What this CPU can run, widest first; never empty.
std::span<const QuantPath> quant_paths();
// Null: the widest again. For tests and benchmarks: it changes the whole process, so nothing else
// may run a kernel meanwhile.
void force_quant_path(const QuantPath* path);
// The one in use.
const QuantPath& quant_path();

// Output that fills more than a share of the caches is written past them ("streaming"): that saves
// reading the lines first, which is a third of the traffic; smaller output is wanted in the cache,
// where whoever asked for it will read it.
inline constexpr std::size_t kStreamingBytesMin = std::size_t{4} << 20;

// Whether what is fetched ahead goes into the first-level cache, which must hold it beside what is
// being coded; else into the second. A hint: before static initialisation it is false.
extern const bool kFetchIntoFirstLevel;

}  // namespace swarmline::kernels
