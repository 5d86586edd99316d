// What a team does with the 4096 elements of a chunk it holds in registers: largest magnitude of
// each block, Hadamard rotation, codes out of values and values out of codes.
//   Layout: thread t of warp w (lane l = t % 32) holds 16 elements, in 16 / V groups of V
//           neighbours: group g begins at element 512 w + 32 V g + V l. So a block of at most 512
//           elements lies in one warp. Where V elements are 16 bytes of the source, every load and
//           store of a warp is one run of memory; where V is 16, a thread has one block and a
//           rotation's first four levels to itself. Staging turns the first into the second.
#pragma once

#include <cstdint>

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/team.cuh"

namespace swarmline::kernels::cuda {

inline constexpr unsigned kPerThread = 16;
inline constexpr unsigned kWarpElements = kTeamWarp * kPerThread;
inline constexpr unsigned kChunk = kTeamThreads * kPerThread;

template <unsigned V>
struct Fragment {
  static constexpr unsigned kGroups = kPerThread / V;
  using Codes = Words<(V > 8 ? 16 : 8)>;  // of a group
  float x[kPerThread];
  float kept[kPerThread];      // a body's own
  Codes codes[kGroups];        // as read
  std::uint32_t top[kGroups];  // largest magnitude of the group's block
  float stored[kGroups];       // its scale
};
template <unsigned V>
SWARMLINE_DEVICE unsigned element_of(unsigned thread, unsigned group) {
  return thread / kTeamWarp * kWarpElements + group * (kTeamWarp * V) + thread % kTeamWarp * V;
}

// In shared memory: what a team loaded, each warp in its own part. Units of 16 bytes: a warp writes
// them in the order of memory, a thread reads its own 16 elements.
template <typename Type>
struct Staging {
  static constexpr unsigned kUnits = kPerThread / Type::kPerLoad;  // of a thread
  static constexpr unsigned kWarpUnits = kTeamWarp * kUnits;
  // A place is left out after each eight, which are all banks once: so that eight threads that read
  // units kUnits apart do not meet in one bank.
  static constexpr unsigned kPlaces = kWarpUnits + kWarpUnits / 8;
  Words<16> unit[kTeamWarps * kPlaces];

  // Both are a thread's own place and a number the compiler knows.
  SWARMLINE_DEVICE void put(unsigned thread, unsigned group, const Words<16>& w) {
    const unsigned lane = thread % kTeamWarp;
    unit[thread / kTeamWarp * kPlaces + lane + lane / 8 + group * (kTeamWarp + kTeamWarp / 8)] = w;
  }
  SWARMLINE_DEVICE Words<16> own(unsigned thread, unsigned i) const {
    const unsigned lane = thread % kTeamWarp;
    return unit[thread / kTeamWarp * kPlaces + lane * kUnits + lane * kUnits / 8 + i];
  }
};

SWARMLINE_DEVICE float fused_multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

// Each group's own.
template <unsigned V>
SWARMLINE_DEVICE void find_own_tops(const Team& team, Team::PerThread<Fragment<V>>& state) {
  team.each(state, [&](unsigned, Fragment<V>& f) {
    SWARMLINE_UNROLL
    for (unsigned g = 0; g < Fragment<V>::kGroups; ++g) f.top[g] = largest_of<V>(f.x + g * V);
  });
}
// Out of each group's own top, its block's. `crossing` (shared memory, one word a warp) is free to
// be written when this begins.
template <unsigned V>
SWARMLINE_DEVICE void find_tops(const Team& team, Team::PerThread<Fragment<V>>& state,
                                std::uint32_t block, std::uint32_t* crossing) {
  using F = Fragment<V>;
  constexpr unsigned kRun = kTeamWarp * V;  // elements of one group of a warp
  if (block <= kRun) {
    SWARMLINE_UNROLL
    for (unsigned mask = 1; mask < kTeamWarp; mask *= 2) {
      if (mask * V >= block) continue;
      SWARMLINE_UNROLL
      for (unsigned g = 0; g < F::kGroups; ++g) {
        team.exchange_xor(
            state, mask, [=](const F& f) { return f.top[g]; },
            [=](unsigned, F& f, std::uint32_t other) {
              f.top[g] = other > f.top[g] ? other : f.top[g];
            });
      }
    }
    return;
  }
  // Groups of one block first; then all lanes of a warp belong to it.
  const unsigned joined = block < kWarpElements ? block / kRun : F::kGroups;
  team.each(state, [=](unsigned, F& f) {
    SWARMLINE_UNROLL
    for (unsigned step = 1; step < F::kGroups; step *= 2) {
      if (step >= joined) continue;
      SWARMLINE_UNROLL
      for (unsigned g = 0; g < F::kGroups; g += 2 * step) {
        f.top[g] = f.top[g + step] > f.top[g] ? f.top[g + step] : f.top[g];
      }
    }
  });
  SWARMLINE_UNROLL
  for (unsigned g = 0; g < F::kGroups; ++g) {
    if ((g & (joined - 1)) != 0) continue;
    team.warp_max(
        state, [=](const F& f) { return f.top[g]; },
        [=](unsigned, F& f, std::uint32_t top) { f.top[g] = top; });
  }
  const unsigned warps = block / kWarpElements;  // of one block
  if (warps > 1) {
    team.each(state, [=](unsigned thread, F& f) {
      if (thread % kTeamWarp == 0) crossing[thread / kTeamWarp] = f.top[0];
    });
    team.sync();
  }
  team.each(state, [=](unsigned thread, F& f) {
    if (warps > 1) {
      const unsigned first = thread / kTeamWarp / warps * warps;
      for (unsigned w = first; w < first + warps; ++w) {
        f.top[0] = crossing[w] > f.top[0] ? crossing[w] : f.top[0];
      }
    }
    SWARMLINE_UNROLL
    for (unsigned g = 1; g < F::kGroups; ++g) {
      if ((g & (joined - 1)) != 0) f.top[g] = joined == F::kGroups ? f.top[0] : f.top[g / 2 * 2];
    }
  });
}

// Butterflies over index bits kFirst .. kBits - 1 in that order: bits of V in registers, the others
// by exchange.
template <unsigned V, unsigned kBits, unsigned kFirst = 0>
SWARMLINE_DEVICE void rotate(const Team& team, Team::PerThread<Fragment<V>>& state) {
  using F = Fragment<V>;
  team.each(state, [&](unsigned, F& f) {
    SWARMLINE_UNROLL
    for (unsigned half = 1U << kFirst; half < V; half *= 2) {
      SWARMLINE_UNROLL
      for (unsigned j = 0; j < kPerThread; ++j) {
        if ((j & half) != 0) continue;
        const float a = f.x[j];
        const float b = f.x[j + half];
        f.x[j] = a + b;
        f.x[j + half] = a - b;
      }
    }
  });
  SWARMLINE_UNROLL
  for (unsigned mask = 1; mask * V < (1U << kBits); mask *= 2) {
    SWARMLINE_UNROLL
    for (unsigned j = 0; j < kPerThread; ++j) {
      team.exchange_xor(
          state, mask, [=](const F& f) { return f.x[j]; },
          [=](unsigned thread, F& f, float other) {
            // The upper of the two is the one subtracted. A product with 1 or -1 is exact.
            const bool is_upper = (thread & mask) != 0;
            f.x[j] = fused_multiply_add(f.x[j], is_upper ? -1.0F : 1.0F, other);
          });
    }
  }
}

// x / kTop for x in [2^-100, 2^128). With kTop of three significant bits or seven no quotient is
// near enough to halfway between floats for the correction to miss.
template <typename C>
SWARMLINE_DEVICE float divided_by_top(float x) {
  if constexpr (C::kTop == 1) {
    return x;
  } else {
    constexpr float kInverse = 1.0F / C::kTop;
    const float near = x * kInverse;
    return fused_multiply_add(fused_multiply_add(-near, C::kTop, x), kInverse, near);
  }
}
// What stored_scale() stores.
template <typename C>
SWARMLINE_DEVICE float scale_of_top(std::uint32_t top, ScaleKind kind) {
  if (rare(top >= kFloatInfinity)) return float_of(kFloatNan);
  const float scale = scale_of_quotient(divided_by_top<C>(float_of(top)), C::kLargestScale, kind);
  return top < kTinyAbsmax ? 0.0F : scale;
}
SWARMLINE_DEVICE float inverse_of(float stored) {
  const bool is_zero = bits_of(stored) == 0;
  const float inverse = 1.0F / (is_zero ? 1.0F : stored);
  return is_zero ? 0.0F : inverse;
}
// Whether a block's codes are 0 whatever its values.
template <typename C>
SWARMLINE_DEVICE bool is_void(float stored) {
  return bits_of(stored) == kFloatNan || (C::kZeroWithoutScale && bits_of(stored) == 0);
}
// Scales of the chunk's blocks out of the tops.
template <typename C, unsigned V>
SWARMLINE_DEVICE void make_scales(Fragment<V>& f, ScaleKind kind) {
  SWARMLINE_UNROLL
  for (unsigned g = 0; g < Fragment<V>::kGroups; ++g) {
    f.stored[g] = scale_of_top<C>(f.top[g], kind);
  }
}

// V codes as they lie in memory, each given in a word of its own.
template <typename C, unsigned V>
SWARMLINE_DEVICE typename Fragment<V>::Codes packed_codes(const std::uint32_t* codes) {
  typename Fragment<V>::Codes w = {};
  if constexpr (C::kBits == 8) {
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < V / 4; ++i) w.word[i] = bytes_of<C::kCodeByte>(codes + 4 * i);
  } else {
    SWARMLINE_UNROLL
    for (unsigned begin = 0; begin < V; begin += 8) {
      std::uint32_t even[4] = {};
      std::uint32_t odd[4] = {};
      SWARMLINE_UNROLL
      for (unsigned i = 0; i < (V < 8 ? V : 8U); i += 2) {
        even[i / 2] = codes[begin + i];
        odd[i / 2] = codes[begin + i + 1];
      }
      constexpr std::uint32_t kLow = 0x0F0F0F0F;
      w.word[begin / 8] = (bytes_of<0>(even) & kLow) | ((bytes_of<0>(odd) << 4) & ~kLow);
    }
  }
  return w;
}
// The codes of group g, V * kBits / 8 bytes, of a block that is not void.
template <typename C, unsigned V>
SWARMLINE_DEVICE typename Fragment<V>::Codes codes_of(const Fragment<V>& f, unsigned g,
                                                      float inverse,
                                                      const typename C::Tables& tables) {
  if constexpr (C::kInFours) {
    typename Fragment<V>::Codes w = {};
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < V; i += 4) w.word[i / 4] = C::four_codes(f.x + g * V + i, inverse);
    return w;
  } else {
    std::uint32_t codes[V];
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < V; ++i) codes[i] = C::code(f.x[g * V + i], inverse, tables);
    return packed_codes<C, V>(codes);
  }
}
// The same with draws; `position` of the group's first element is a multiple of V, or of 8.
template <typename C, unsigned V>
SWARMLINE_DEVICE typename Fragment<V>::Codes stochastic_codes_of(const Fragment<V>& f, unsigned g,
                                                                 float inverse,
                                                                 const StochasticKey& key,
                                                                 std::uint64_t position) {
  constexpr unsigned kRun = V < kPhiloxDraws ? V : kPhiloxDraws;
  const bool upper = V < kPhiloxDraws && position % kPhiloxDraws != 0;
  std::uint32_t codes[V];
  SWARMLINE_UNROLL
  for (unsigned begin = 0; begin < V; begin += kRun) {
    const PhiloxWords draws =
        draws_of_group(key.seed, key.stream, (position + begin) / kPhiloxDraws);
    SWARMLINE_UNROLL
    for (unsigned i = begin; i < begin + kRun; ++i) {
      std::uint32_t draw = draw_of(draws, i);
      if constexpr (V < kPhiloxDraws) draw = upper ? draw_of(draws, V + i) : draw;
      codes[i] = C::code_stochastic(f.x[g * V + i], inverse, draw);
    }
  }
  return packed_codes<C, V>(codes);
}

// What the codes of group g stand for, before rotation and scale.
template <typename C, unsigned V>
SWARMLINE_DEVICE void numbers_of(const typename Fragment<V>::Codes& w, Fragment<V>& f, unsigned g,
                                 const typename C::Tables& tables) {
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < V; ++i) {
    const std::uint32_t code =
        (w.word[i * C::kBits / 32] >> (i * C::kBits % 32)) & ((1U << C::kBits) - 1U);
    f.x[g * V + i] = C::number(code, tables);
  }
}
// The values of numbers, the rotation undone, in a block with the scale `stored`.
template <typename C, unsigned V>
SWARMLINE_DEVICE void scale_numbers(Fragment<V>& f, unsigned g, float stored) {
  bool any_nan = scale_is_bad(stored, C::kLargestScale);
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < V; ++i) {
    float& x = f.x[g * V + i];
    if constexpr (C::kZeroWithoutScale) any_nan |= x != x;  // an fp8 code may be NaN itself
    x = C::kRotated != 0 ? rotated_value(x, stored) : x * stored;
  }
  if (!rare(any_nan)) return;
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < V; ++i) {  // arithmetic may have changed a NaN's bits
    float& x = f.x[g * V + i];
    const bool is_nan = scale_is_bad(stored, C::kLargestScale) || x != x;
    x = is_nan ? float_of(kFloatNan) : x;
  }
}

}  // namespace swarmline::kernels::cuda
