#include "kernels/cpu/quant_path.h"

#include <atomic>
#include <cstddef>

#if defined(__linux__)
#include <unistd.h>
#endif

#include <hwy/targets.h>

namespace swarmline::kernels {
namespace {

struct Paths {
  QuantPath paths[8] = {};
  std::size_t count = 0;
};

bool has_vbmi() {
#if defined(SWARMLINE_KERNELS_X86)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

// The targets that the kernels are compiled for (quant_vector.inc).
Paths find_paths() {
  Paths found;
  const std::int64_t supported = hwy::SupportedTargets();
#if defined(SWARMLINE_KERNELS_X86)
  if ((supported & HWY_AVX3) != 0) {
    if (has_vbmi()) found.paths[found.count++] = {"avx512vbmi", HWY_AVX3, true};
    found.paths[found.count++] = {"avx512", HWY_AVX3, false};
  }
  if ((supported & HWY_AVX2) != 0) found.paths[found.count++] = {"avx2", HWY_AVX2, false};
#endif
  found.paths[found.count++] = {"baseline", HWY_STATIC_TARGET, false};
  (void)supported;
  return found;
}

std::atomic<const QuantPath*> forced{nullptr};

// Measured, times memcpy, quantize lin8/256: with 48 KiB (Zen 5) 2.1 into the first level; with 32
// (Zen 4) 1.2 into the first and 2.1 into the second.
constexpr long kFirstLevelBytesMin = 48 << 10;

bool has_large_first_level() {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  return sysconf(_SC_LEVEL1_DCACHE_SIZE) >= kFirstLevelBytesMin;
#else
  return false;
#endif
}

}  // namespace

const bool kFetchIntoFirstLevel = has_large_first_level();

std::span<const QuantPath> quant_paths() {
  static const Paths found = find_paths();
  return {found.paths, found.count};
}

void force_quant_path(const QuantPath* path) {
  forced.store(path, std::memory_order_relaxed);
  hwy::SetSupportedTargetsForTest(path != nullptr ? path->highway_target : 0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

const QuantPath& quant_path() {
  const QuantPath* path = forced.load(std::memory_order_relaxed);
  return path != nullptr ? *path : quant_paths().front();
}

}  // namespace swarmline::kernels
