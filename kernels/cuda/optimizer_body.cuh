// What one team does with one chunk of optimizer_plan.h, and with one tensor's sums. Teams have
// kTeamThreads threads, but for rate_body, which wants one warp.
//   Same bits: as the CPU kernels of optimizer.h; sums in the order of kernels.h.
//   Shapes:    arenas and state start on 16-byte boundaries, and so do a plan's offsets into them.
#pragma once

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/team.cuh"
#include "kernels/cuda/vector_io.cuh"
#include "kernels/format/adam8.h"
#include "kernels/optimizer_element.h"
#include "kernels/optimizer_plan.h"

namespace swarmline::kernels::cuda {

inline constexpr unsigned kVector = 4;  // floats a thread holds side by side

SWARMLINE_DEVICE void load4(const float* values, unsigned first, unsigned count, float* x) {
  if (first + kVector <= count) {
    const Words<16> w = load_words<16>(values + first);
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < kVector; ++i) x[i] = float_of(w.word[i]);
    return;
  }
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < kVector; ++i) x[i] = first + i < count ? values[first + i] : 0.0F;
}
SWARMLINE_DEVICE void store4(float* values, unsigned first, unsigned count, const float* x) {
  if (first + kVector <= count) {
    Words<16> w;
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < kVector; ++i) w.word[i] = bits_of(x[i]);
    store_words(values + first, w);
    return;
  }
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < kVector; ++i) {
    if (first + i < count) values[first + i] = x[i];
  }
}

// A chunk's part of the arenas.
struct ChunkView {
  SWARMLINE_DEVICE ChunkView(const OptimizerChunk& chunk, const OptimizerArenas& arenas)
      : count(chunk.count),
        gradients(arenas.gradients + chunk.element),
        parameters(arenas.parameters + chunk.element),
        m(arenas.m + chunk.values_at),
        v(arenas.v + chunk.values_at),
        m_scales(reinterpret_cast<float*>(arenas.m + chunk.scales_at)),
        v_scales(reinterpret_cast<float*>(arenas.v + chunk.scales_at)) {}
  SWARMLINE_DEVICE float* m32() const { return reinterpret_cast<float*>(m); }
  SWARMLINE_DEVICE float* v32() const { return reinterpret_cast<float*>(v); }
  SWARMLINE_DEVICE std::uint8_t* m8() const { return reinterpret_cast<std::uint8_t*>(m); }
  SWARMLINE_DEVICE std::uint8_t* v8() const { return reinterpret_cast<std::uint8_t*>(v); }

  unsigned count;
  const float* gradients;
  float* parameters;
  std::byte* m;
  std::byte* v;
  float* m_scales;
  float* v_scales;
};

// How a step moves one element, given to the bodies below.
struct AdamwRule {
  AdamwStep<float> step;
  SWARMLINE_DEVICE void operator()(float g, float& m, float& v, float& p) const {
    adamw_element(step, g, m, v, p);
  }
};
struct LambRule {
  LambStep<float> step;
  float rate;
  SWARMLINE_DEVICE void operator()(float g, float& m, float& v, float& p) const {
    move_moments(step.moments, g, m, v);
    p = p - rate * lamb_update(step, m, v, p);
  }
};

struct Nothing {};

SWARMLINE_DEVICE void adamw32_body(const Team& team, const ChunkView& view, const AdamwRule& rule) {
  Team::PerThread<Nothing> none;
  team.each(none, [&](unsigned thread, Nothing&) {
    for (unsigned first = thread * kVector; first < view.count; first += kTeamThreads * kVector) {
      float g[kVector], m[kVector], v[kVector], p[kVector];
      load4(view.gradients, first, view.count, g);
      load4(view.m32(), first, view.count, m);
      load4(view.v32(), first, view.count, v);
      load4(view.parameters, first, view.count, p);
      SWARMLINE_UNROLL
      for (unsigned i = 0; i < kVector; ++i) rule(g[i], m[i], v[i], p[i]);
      store4(view.m32(), first, view.count, m);
      store4(view.v32(), first, view.count, v);
      store4(view.parameters, first, view.count, p);
    }
  });
}

// LAMB's second pass: the moments have moved in the first.
SWARMLINE_DEVICE void lamb32_body(const Team& team, const ChunkView& view,
                                  const LambStep<float>& step, float rate) {
  Team::PerThread<Nothing> none;
  team.each(none, [&](unsigned thread, Nothing&) {
    for (unsigned first = thread * kVector; first < view.count; first += kTeamThreads * kVector) {
      float m[kVector], v[kVector], p[kVector];
      load4(view.m32(), first, view.count, m);
      load4(view.v32(), first, view.count, v);
      load4(view.parameters, first, view.count, p);
      SWARMLINE_UNROLL
      for (unsigned i = 0; i < kVector; ++i)
        p[i] = p[i] - rate * lamb_update(step, m[i], v[i], p[i]);
      store4(view.parameters, first, view.count, p);
    }
  });
}

struct MomentCodebooks {
  float m[256];
  float v[256];
};
struct MomentTables {
  MomentCodebooks codebooks;
  Dyn8Cells<true> m;
  Dyn8Cells<false> v;
};
SWARMLINE_DEVICE void fill_codebooks(unsigned thread, MomentCodebooks& codebooks) {
  Dyn8<true>::fill_codebook(thread, codebooks.m);
  Dyn8<false>::fill_codebook(thread, codebooks.v);
}
SWARMLINE_DEVICE void fill_tables(unsigned thread, MomentTables& tables) {
  fill_codebooks(thread, tables.codebooks);
  Dyn8<true>::fill_cells(thread, tables.m);
  Dyn8<false>::fill_cells(thread, tables.v);
}

// Four codes from codes[first]; those from `count` on do not exist and are `none`.
SWARMLINE_DEVICE std::uint32_t load_codes4(const std::uint8_t* codes, unsigned first,
                                           unsigned count, std::uint8_t none) {
  if (first + kVector <= count) return load_words<4>(codes + first).word[0];
  std::uint32_t word = 0;
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < kVector; ++i) {
    word |= std::uint32_t{first + i < count ? codes[first + i] : none} << (8 * i);
  }
  return word;
}
SWARMLINE_DEVICE void store_codes4(std::uint8_t* codes, unsigned first, unsigned count,
                                   std::uint32_t word) {
  if (first + kVector <= count) return store_words(codes + first, Words<4>{{word}});
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < kVector; ++i) {
    if (first + i < count) codes[first + i] = static_cast<std::uint8_t>(word >> (8 * i));
  }
}
struct Codes4 {
  std::uint32_t m;
  std::uint32_t v;
};
SWARMLINE_DEVICE Codes4 load_moments4(const ChunkView& view, unsigned first) {
  return {load_codes4(view.m8(), first, view.count, kDyn8SignedZero),
          load_codes4(view.v8(), first, view.count, kDyn8UnsignedZero)};
}
SWARMLINE_DEVICE void decode4(const Codes4& codes, float m_scale, float v_scale,
                              const MomentCodebooks& codebooks, float* m, float* v) {
  SWARMLINE_UNROLL
  for (unsigned i = 0; i < kVector; ++i) {
    const unsigned shift = 8 * i;
    m[i] = moment_value(codebooks.m[(codes.m >> shift) & 0xFFU], m_scale);
    v[i] = moment_value(codebooks.v[(codes.v >> shift) & 0xFFU], v_scale);
  }
}

// A warp steps a block of kMomentBlock elements: lane l holds elements 4 l to 4 l + 3 of each half,
// in registers from the decoding to the coding.
inline constexpr unsigned kHalfBlock = kTeamWarp * kVector;
static_assert(2 * kHalfBlock == kMomentBlock);

struct BlockState {
  float m[2 * kVector];
  float v[2 * kVector];
  std::uint32_t m_absmax;
  std::uint32_t v_absmax;
};

template <typename Rule>
SWARMLINE_DEVICE void step_block(const ChunkView& view, const Rule& rule,
                                 const MomentTables& tables, unsigned begin, unsigned lane,
                                 BlockState& s) {
  s.m_absmax = 0;
  s.v_absmax = 0;
  if (begin >= view.count) return;
  // All loads before all work: none waits for another.
  float g[2 * kVector], p[2 * kVector];
  Codes4 codes[2];
  SWARMLINE_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned first = begin + half * kHalfBlock + lane * kVector;
    load4(view.gradients, first, view.count, g + half * kVector);
    load4(view.parameters, first, view.count, p + half * kVector);
    codes[half] = load_moments4(view, first);
  }
  const float m_scale = view.m_scales[begin / kMomentBlock];
  const float v_scale = view.v_scales[begin / kMomentBlock];
  SWARMLINE_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned first = begin + half * kHalfBlock + lane * kVector;
    float* const m = s.m + half * kVector;
    float* const v = s.v + half * kVector;
    decode4(codes[half], m_scale, v_scale, tables.codebooks, m, v);
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < kVector; ++i) {
      rule(g[half * kVector + i], m[i], v[i], p[half * kVector + i]);
      const std::uint32_t m_size = magnitude_of(m[i]);
      const std::uint32_t v_size = magnitude_of(v[i]);
      const bool is_there = first + i < view.count;
      s.m_absmax = is_there && m_size > s.m_absmax ? m_size : s.m_absmax;
      s.v_absmax = is_there && v_size > s.v_absmax ? v_size : s.v_absmax;
    }
    store4(view.parameters, first, view.count, p + half * kVector);
  }
}

SWARMLINE_DEVICE void code_block(const ChunkView& view, const MomentTables& tables, unsigned begin,
                                 unsigned lane, const BlockState& s) {
  const float m_scale = moment_scale(s.m_absmax);
  const float v_scale = moment_scale(s.v_absmax);
  const bool has_m = m_scale > 0;
  const bool has_v = v_scale > 0;
  const float m_inverse = 1.0F / m_scale;
  const float v_inverse = 1.0F / v_scale;
  if (begin >= view.count) return;
  if (lane == 0) {
    view.m_scales[begin / kMomentBlock] = m_scale;
    view.v_scales[begin / kMomentBlock] = v_scale;
  }
  SWARMLINE_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned first = begin + half * kHalfBlock + lane * kVector;
    std::uint32_t m_codes = 0, v_codes = 0;
    SWARMLINE_UNROLL
    for (unsigned i = 0; i < kVector; ++i) {
      const float m = s.m[half * kVector + i];
      const float v = s.v[half * kVector + i];
      const std::uint32_t m_code = has_m ? Dyn8<true>::code(m, m_inverse, tables.m) >> 24
                                         : moment_code_of_none(m_scale, kDyn8SignedZero);
      std::uint32_t v_code = has_v ? Dyn8<false>::code(v, v_inverse, tables.v) >> 24
                                   : moment_code_of_none(v_scale, kDyn8UnsignedZero);
      v_code = has_v && v > 0 && v_code == 0 ? 1U : v_code;  // the floor of adam8.h
      m_codes |= m_code << (8 * i);
      v_codes |= v_code << (8 * i);
    }
    store_codes4(view.m8(), first, view.count, m_codes);
    store_codes4(view.v8(), first, view.count, v_codes);
  }
}

template <typename Rule>
SWARMLINE_DEVICE void step8_body(const Team& team, const ChunkView& view, const Rule& rule,
                                 MomentTables& tables) {
  Team::PerThread<BlockState> state;
  team.each(state, [&](unsigned thread, BlockState&) { fill_tables(thread, tables); });
  team.sync();
  for (unsigned done = 0; done < view.count; done += kTeamWarps * kMomentBlock) {
    team.each(state, [&](unsigned thread, BlockState& s) {
      const unsigned begin = done + thread / kTeamWarp * kMomentBlock;
      step_block(view, rule, tables, begin, thread % kTeamWarp, s);
    });
    team.warp_max(
        state, [](const BlockState& s) { return s.m_absmax; },
        [](unsigned, BlockState& s, std::uint32_t top) { s.m_absmax = top; });
    team.warp_max(
        state, [](const BlockState& s) { return s.v_absmax; },
        [](unsigned, BlockState& s, std::uint32_t top) { s.v_absmax = top; });
    team.each(state, [&](unsigned thread, BlockState& s) {
      const unsigned begin = done + thread / kTeamWarp * kMomentBlock;
      code_block(view, tables, begin, thread % kTeamWarp, s);
    });
  }
}

}  // namespace swarmline::kernels::cuda
