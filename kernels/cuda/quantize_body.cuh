// Bodies of the quantization kernels: what one team does with one chunk of 4096 elements. Written
// over Team, so that tests run them on the host; the launches are in quantize_launch.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/fragment.cuh"
#include "kernels/cuda/tiles.h"
#include "kernels/quantize.h"

namespace swarmline::kernels::cuda {

inline constexpr std::uint64_t kChunksPerTile = kTileElements / kChunk;
static_assert(kTileElements % kChunk == 0);

// Where scales and codes lie: in two arrays, or (tile_stride > 0) in the tiles of a wire buffer.
struct CodesAt {
  std::uint8_t* scales = nullptr;  // or the first tile
  std::uint8_t* codes = nullptr;
  std::uint64_t tile_stride = 0;
};
struct QuantizeArgs {
  const void* values = nullptr;
  std::uint64_t n = 0;
  QuantSpec spec;
  CodesAt out;
  bool is_stochastic = false;
  StochasticKey key;
  // Error feedback's; they may be the same.
  const float* current = nullptr;
  float* next = nullptr;
  std::uint32_t* non_finite = nullptr;
};
struct DequantizeArgs {
  void* values = nullptr;
  std::uint64_t n = 0;
  QuantSpec spec;
  CodesAt in;
  std::uint32_t* non_finite = nullptr;
};
template <typename C>
struct Shared {
  typename C::Tables tables;
  std::uint32_t crossing[kTeamWarps];
};
template <typename C, typename Type>
struct StagedShared : Shared<C> {
  Staging<Type> staging;
};

template <typename C>
SWARMLINE_DEVICE std::uint32_t block_of(const QuantSpec& spec) {
  const std::uint32_t block = kIsReport ? kReportBlock : spec.block;
  return C::kBlock != 0 ? C::kBlock : block;
}
SWARMLINE_DEVICE ScaleKind scales_of(const QuantSpec& spec) {
  return kIsReport ? ScaleKind::kF32 : spec.scales;
}
// A chunk: where its scales and codes begin, which element of the tensor it begins with, how many
// elements it has, and of how many the codes are kept (a rotated block keeps all of its codes).
// Elements are counted from the chunk's first, in 32 bits.
struct Place {
  static constexpr bool kIsWhole = false;
  std::uint8_t* scales;
  std::uint8_t* codes;
  std::uint64_t tensor_first;
  unsigned count;
  unsigned coded;
};
// One with all its elements, everything aligned for access by 16 bytes of values at a time.
struct WholePlace : Place {
  static constexpr bool kIsWhole = true;
};

// The chunk that begins with element `first` of what `scales` and `codes` hold `count` elements of.
template <typename C>
SWARMLINE_DEVICE Place place_at(std::uint8_t* scales, std::uint8_t* codes, const QuantSpec& spec,
                                std::uint64_t first, std::uint64_t count) {
  const unsigned shift = shift_of(block_of<C>(spec)) - (scales_of(spec) == ScaleKind::kF32 ? 2 : 1);
  const std::uint64_t rest = count - first;
  const unsigned here = rest < kChunk ? static_cast<unsigned>(rest) : kChunk;
  unsigned coded = here;
  if constexpr (C::kRotated != 0) coded = (here + C::kBlock - 1) / C::kBlock * C::kBlock;
  return {scales + (first >> shift), codes + first * C::kBits / 8, first, here, coded};
}
template <typename C>
SWARMLINE_DEVICE Place place_of(const CodesAt& at, const QuantSpec& spec, std::uint64_t n,
                                std::uint64_t chunk) {
  if (kIsReport || at.tile_stride == 0)
    return place_at<C>(at.scales, at.codes, spec, chunk * kChunk, n);
  const std::uint64_t tile = chunk / kChunksPerTile;
  const std::uint64_t begin = tile * kTileElements;
  const std::uint64_t count = n - begin < kTileElements ? n - begin : kTileElements;
  std::uint8_t* const base = at.scales + tile * at.tile_stride;
  Place place = place_at<C>(base, base + tile_scales_bytes(spec, count), spec,
                            chunk % kChunksPerTile * kChunk, count);
  place.tensor_first += begin;
  return place;
}
// f(place), as a WholePlace if it is one.
template <typename F>
SWARMLINE_DEVICE void with_place(const Place& place, bool aligned, F f) {
  const bool is_whole = aligned && place.count == kChunk && is_aligned(place.codes, 16);
  if (rare(!is_whole)) return f(place);
  f(WholePlace{place});
}
template <typename P>
SWARMLINE_DEVICE bool exists(const P& place, unsigned element) {
  return P::kIsWhole || element < place.count;
}
// Whether V elements from `element` on may be accessed as one: they exist, and the chunk begins at
// a multiple of their size, as the caller says.
template <unsigned V, typename P>
SWARMLINE_DEVICE bool is_run(const P& place, bool aligned, unsigned element) {
  return P::kIsWhole || (aligned && element + V <= place.count);
}

SWARMLINE_DEVICE void store_scale(std::uint8_t* scales, std::uint64_t block, ScaleKind kind,
                                  float stored) {
  if (kind == ScaleKind::kF32) {
    reinterpret_cast<float*>(scales)[block] = stored;
  } else {
    reinterpret_cast<std::uint16_t*>(scales)[block] =
        static_cast<std::uint16_t>(bits_of(stored) >> 16);
  }
}
SWARMLINE_DEVICE float load_scale(const std::uint8_t* scales, std::uint64_t block, ScaleKind kind) {
  if (kind == ScaleKind::kF32) return reinterpret_cast<const float*>(scales)[block];
  const std::uint32_t bits = reinterpret_cast<const std::uint16_t*>(scales)[block];
  return float_of(bits << 16);
}
SWARMLINE_DEVICE void report_non_finite(std::uint32_t* non_finite, bool bad) {
  if (!rare(bad) || non_finite == nullptr) return;
#if defined(__CUDA_ARCH__)
  atomicOr(non_finite, 1U);
#else
  *non_finite |= 1U;
#endif
}

// put(g, the values of group g as they lie in memory) for each group of a thread. Groups count from
// the thread's first, so that their addresses differ from its by what the compiler knows.
template <typename Type, typename P, typename F>
SWARMLINE_DEVICE void load_groups(const void* values, const P& place, unsigned thread, F put) {
  constexpr unsigned kV = Type::kPerLoad;
  const auto* from = static_cast<const typename Type::Bits*>(values) + place.tensor_first;
  const bool aligned = is_aligned(from, 16);
  const unsigned first = element_of<kV>(thread, 0);
  const unsigned rest = first < place.count ? place.count - first : 0;
  SWARMLINE_UNROLL
  for (unsigned g = 0; g < kPerThread / kV; ++g) {
    const unsigned element = element_of<kV>(0, g);
    const bool vector = is_run<kV>(place, aligned, first + element);
    put(g, load_packed<Type>(from + first, element, rest, vector));
  }
}
template <typename Type, typename P>
SWARMLINE_DEVICE void load_chunk(const void* values, const P& place, unsigned thread, float* x) {
  load_groups<Type>(values, place, thread, [x](unsigned g, const Words<16>& w) {
    unpack<Type>(w, x + g * Type::kPerLoad);
  });
}
// Returns whether a value is not finite in its type.
template <typename Type, typename P>
SWARMLINE_DEVICE bool store_chunk(void* values, const P& place, unsigned thread, const float* x) {
  constexpr unsigned kV = Type::kPerLoad;
  auto* const to = static_cast<typename Type::Bits*>(values) + place.tensor_first;
  const bool aligned = is_aligned(to, 16);
  bool bad = false;
  SWARMLINE_UNROLL
  for (unsigned g = 0; g < kPerThread / kV; ++g) {
    const unsigned element = element_of<kV>(thread, g);
    const Words<16> packed = pack<Type>(x + g * kV);
    bad |= any_not_finite<Type>(packed);
    store_values<Type>(to, element, place.count, is_run<kV>(place, aligned, element), packed);
  }
  return bad;
}

// Scale and codes of the values in `state`, rotated already, with their tops in f.top; leaves the
// scales in f.stored. With
// kFeedback, values become what their codes stand for, before rotation and scale.
template <typename C, unsigned V, bool kStochastic, bool kFeedback, typename P>
SWARMLINE_DEVICE void encode(const Team& team, Team::PerThread<Fragment<V>>& state,
                             cuda::Shared<C>& shared, const QuantSpec& spec,
                             const StochasticKey& key, const P& place, std::uint32_t* non_finite) {
  constexpr unsigned kBytes = V * C::kBits / 8;
  const std::uint32_t block = block_of<C>(spec);
  find_tops<V>(team, state, block, shared.crossing);
  team.each(state, [&](unsigned thread, Fragment<V>& f) {
    make_scales<C, V>(f, scales_of(spec));
    const unsigned shift = shift_of(block);
    const bool aligned = is_aligned(place.codes, kBytes);
    float inverse = 0;
    SWARMLINE_UNROLL
    for (unsigned g = 0; g < Fragment<V>::kGroups; ++g) {
      const unsigned element = element_of<V>(thread, g);
      const bool is_of_group_before = g % 2 == 1 && block > kTeamWarp * V;
      if (!is_of_group_before) inverse = inverse_of(f.stored[g]);
      typename Fragment<V>::Codes w = {};
      if (rare(is_void<C>(f.stored[g]))) {
        // All 0 already.
      } else if constexpr (kStochastic) {
        w = stochastic_codes_of<C, V>(f, g, inverse, key,
                                      key.first_element + place.tensor_first + element);
      } else {
        w = codes_of<C, V>(f, g, inverse, shared.tables);
      }
      store_codes<kBytes>(place.codes, element * C::kBits / 8, (place.coded * C::kBits + 7) / 8,
                          is_run<V>(place, aligned, element), w);
      if ((element & (block - 1)) == 0 && exists(place, element)) {
        store_scale(place.scales, element >> shift, scales_of(spec), f.stored[g]);
        report_non_finite(non_finite, bits_of(f.stored[g]) == kFloatNan);
      }
      if constexpr (kFeedback) numbers_of<C, V>(w, f, g, shared.tables);
    }
  });
}

// The chunk's codes and the scales of its groups; 0 where there are none.
template <typename C, unsigned V, typename P>
SWARMLINE_DEVICE void read_codes(Fragment<V>& f, const QuantSpec& spec, const P& place,
                                 unsigned thread) {
  constexpr unsigned kBytes = V * C::kBits / 8;
  const unsigned shift = shift_of(block_of<C>(spec));
  const bool aligned = is_aligned(place.codes, kBytes);
  SWARMLINE_UNROLL
  for (unsigned g = 0; g < Fragment<V>::kGroups; ++g) {
    const unsigned element = element_of<V>(thread, g);
    f.codes[g] = load_codes<kBytes, typename Fragment<V>::Codes>(
        place.codes, element * C::kBits / 8, (place.coded * C::kBits + 7) / 8,
        is_run<V>(place, aligned, element));
    f.stored[g] =
        exists(place, element) ? load_scale(place.scales, element >> shift, scales_of(spec)) : 0.0F;
  }
}
template <typename C, unsigned V>
SWARMLINE_DEVICE void all_numbers(Fragment<V>& f, const typename C::Tables& tables) {
  SWARMLINE_UNROLL
  for (unsigned g = 0; g < Fragment<V>::kGroups; ++g) {
    numbers_of<C, V>(f.codes[g], f, g, tables);
  }
}
// Values out of the numbers in `state`, with the scales in f.stored.
template <typename C, unsigned V>
SWARMLINE_DEVICE void decode(const Team& team, Team::PerThread<Fragment<V>>& state) {
  if constexpr (C::kRotated != 0) rotate<V, C::kRotated>(team, state);
  team.each(state, [&](unsigned, Fragment<V>& f) {
    SWARMLINE_UNROLL
    for (unsigned g = 0; g < Fragment<V>::kGroups; ++g) scale_numbers<C, V>(f, g, f.stored[g]);
  });
}

// Rotates the values, or not, and finds each group's top unless it is known.
template <typename C, unsigned V, bool kAreNarrow = false>
SWARMLINE_DEVICE void rotate_values(const Team& team, Team::PerThread<Fragment<V>>& state) {
  if constexpr (C::kRotated != 0) {
    team.each(state, [&](unsigned, Fragment<V>& f) {
      SWARMLINE_UNROLL
      for (unsigned j = 0; j < kPerThread; j += 2) {
        // A product of what was 16 bits is exact, and may stay unrounded in the first butterfly.
        const float a = f.x[j] * C::kPrescale;
        const float b = kAreNarrow ? f.x[j + 1] : f.x[j + 1] * C::kPrescale;
        f.x[j] = kAreNarrow ? fused_multiply_add(b, C::kPrescale, a) : a + b;
        f.x[j + 1] = kAreNarrow ? fused_multiply_add(b, -C::kPrescale, a) : a - b;
      }
    });
    rotate<V, C::kRotated, 1>(team, state);
  }
  if constexpr (C::kRotated != 0 || !kAreNarrow) find_own_tops<V>(team, state);
}

template <typename C>
SWARMLINE_DEVICE void tables_filled(const Team& team) {
  if constexpr (kHasTables<C>) team.sync();
}

template <typename C, typename Type, bool kStochastic>
struct QuantizeBody {
  using Args = QuantizeArgs;
  using Shared = StagedShared<C, Type>;
  static constexpr bool kIsNarrow = sizeof(typename Type::Bits) == 2;
  static constexpr bool kManyTeams = true;
  static constexpr unsigned kV = kPerThread;
  static SWARMLINE_DEVICE void run(const Team& team, Shared& shared, const Args& args,
                                   std::uint64_t chunk) {
    with_place(place_of<C>(args.out, args.spec, args.n, chunk), is_aligned(args.values, 16),
               [&](const auto& place) { work(team, shared, args, place); });
  }
  template <typename P>
  static SWARMLINE_DEVICE void work(const Team& team, Shared& shared, const Args& args,
                                    const P& place) {
    Team::PerThread<Fragment<kV>> state;
    team.each(state, [&](unsigned thread, Fragment<kV>&) {
      load_groups<Type>(args.values, place, thread,
                        [&](unsigned g, const Words<16>& w) { shared.staging.put(thread, g, w); });
      C::fill(thread, shared.tables, true, false);
    });
    tables_filled<C>(team);
    team.sync_warp();
    team.each(state, [&](unsigned thread, Fragment<kV>& f) {
      std::uint32_t words[4 * Staging<Type>::kUnits];
      SWARMLINE_UNROLL
      for (unsigned i = 0; i < Staging<Type>::kUnits; ++i) {
        const Words<16> w = shared.staging.own(thread, i);
        unpack<Type>(w, f.x + i * Type::kPerLoad);
        SWARMLINE_UNROLL
        for (unsigned k = 0; k < 4; ++k) words[4 * i + k] = w.word[k];
      }
      // Before values become fp32, two are compared at once.
      if constexpr (kIsNarrow && C::kRotated == 0) f.top[0] = largest_of_packed<Type>(words);
    });
    rotate_values<C, kV, kIsNarrow>(team, state);
    encode<C, kV, kStochastic, false>(team, state, shared, args.spec, args.key, place,
                                      args.non_finite);
  }
};

template <typename C, typename Type>
struct DequantizeBody {
  using Args = DequantizeArgs;
  using Shared = cuda::Shared<C>;
  static constexpr bool kManyTeams = false;
  static constexpr unsigned kV = Type::kPerLoad;
  static SWARMLINE_DEVICE void run(const Team& team, Shared& shared, const Args& args,
                                   std::uint64_t chunk) {
    with_place(place_of<C>(args.in, args.spec, args.n, chunk), is_aligned(args.values, 16),
               [&](const auto& place) { work(team, shared, args, place); });
  }
  template <typename P>
  static SWARMLINE_DEVICE void work(const Team& team, Shared& shared, const Args& args,
                                    const P& place) {
    Team::PerThread<Fragment<kV>> state;
    team.each(state, [&](unsigned thread, Fragment<kV>& f) {
      read_codes<C, kV>(f, args.spec, place, thread);
      C::fill(thread, shared.tables, false, true);
    });
    tables_filled<C>(team);
    team.each(state, [&](unsigned, Fragment<kV>& f) { all_numbers<C, kV>(f, shared.tables); });
    decode<C, kV>(team, state);
    team.each(state, [&](unsigned thread, Fragment<kV>& f) {
      const bool bad = store_chunk<Type>(args.values, place, thread, f.x);
      report_non_finite(args.non_finite, bad);
    });
  }
};

template <typename C, bool kStochastic>
struct FeedbackBody {
  using Args = QuantizeArgs;
  using Shared = cuda::Shared<C>;
  static constexpr bool kManyTeams = false;
  static constexpr unsigned kV = Float32::kPerLoad;
  static SWARMLINE_DEVICE void run(const Team& team, Shared& shared, const Args& args,
                                   std::uint64_t chunk) {
    const Place place = place_of<C>(args.out, args.spec, args.n, chunk);
    Team::PerThread<Fragment<kV>> state;
    team.each(state, [&](unsigned thread, Fragment<kV>& f) {
      load_chunk<Float32>(args.values, place, thread, f.x);
      load_chunk<Float32>(args.current, place, thread, f.kept);
      SWARMLINE_UNROLL
      for (unsigned j = 0; j < kPerThread; ++j) {
        f.x[j] = f.x[j] + f.kept[j];
        f.kept[j] = f.x[j];
      }
      C::fill(thread, shared.tables, true, true);
    });
    tables_filled<C>(team);
    rotate_values<C, kV>(team, state);
    encode<C, kV, kStochastic, true>(team, state, shared, args.spec, args.key, place,
                                     args.non_finite);
    decode<C, kV>(team, state);
    team.each(state, [&](unsigned thread, Fragment<kV>& f) {
      SWARMLINE_UNROLL
      for (unsigned j = 0; j < kPerThread; ++j) {
        const float rest = f.kept[j] - f.x[j];
        f.x[j] = not_finite(rest) ? 0.0F : rest;
      }
      store_chunk<Float32>(args.next, place, thread, f.x);
    });
  }
};

}  // namespace swarmline::kernels::cuda
