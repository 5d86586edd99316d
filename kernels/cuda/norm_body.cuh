// Body of normalize_quantize() (quantize.cuh): a team normalises one row and codes it. A row of at
// most 4096 elements stays in registers; of a longer one the later passes read again.
#pragma once

#include <cstdint>

#include "kernels/cuda/quantize_body.cuh"
#include "kernels/optimizer_element.h"

namespace swarmline::kernels::cuda {

struct NormArgs {
  const void* values = nullptr;
  std::uint64_t rows = 0;
  std::uint64_t width = 0;
  QuantSpec spec;
  CodesAt out;
  bool is_layer = false;
  float eps = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  std::uint32_t* non_finite = nullptr;
};

// Of a team for rows of this width: a warp for every 512 elements, 8 at most.
SWARMLINE_ELEMENT unsigned norm_threads(std::uint64_t width) {
  const std::uint64_t warps = (width + kWarpElements - 1) / kWarpElements;
  return kTeamWarp * static_cast<unsigned>(warps < kTeamWarps ? warps : kTeamWarps);
}
SWARMLINE_DEVICE float inverse_root(float value) {
  return 1.0F / square_root(value);
}

template <typename C, typename Type>
struct NormBody {
  using Args = NormArgs;
  using Shared = cuda::Shared<C>;
  static constexpr bool kManyTeams = false;
  static constexpr unsigned kV = Type::kPerLoad;
  using F = Fragment<kV>;
  using State = Team::PerThread<F>;

  // A run of a row, as a chunk of a tensor that is the row.
  static SWARMLINE_DEVICE Place run_of_row(const Args& args, std::uint64_t row,
                                           std::uint64_t first) {
    const std::uint64_t rest = args.width - first;
    const unsigned count = rest < kChunk ? static_cast<unsigned>(rest) : kChunk;
    return {nullptr, nullptr, row * args.width + first, count, count};
  }
  // `from` begins with the chunk; Values may be wider than what decides the layout.
  template <typename Values>
  static SWARMLINE_DEVICE void load(const typename Values::Bits* from, const Place& place,
                                    unsigned thread, float* x) {
    const bool aligned = is_aligned(from, 16);
    SWARMLINE_UNROLL
    for (unsigned j = 0; j < kPerThread; j += Values::kPerLoad) {
      const unsigned element = element_of<kV>(thread, j / kV) + j % kV;
      load_values<Values>(from, element, place.count,
                          is_run<Values::kPerLoad>(place, aligned, element), x + j);
    }
  }
  static SWARMLINE_DEVICE void load_row(const Args& args, unsigned thread, const Place& place,
                                        float* x) {
    load<Type>(static_cast<const typename Type::Bits*>(args.values) + place.tensor_first, place,
               thread, x);
  }

  // Adds up f.kept[0] of all threads, into all of them.
  static SWARMLINE_DEVICE void add_up(const Team& team, State& state, float* crossing) {
    for (unsigned mask = 1; mask < kTeamWarp; mask *= 2) {
      team.exchange_xor(
          state, mask, [](const F& f) { return f.kept[0]; },
          [](unsigned, F& f, float other) { f.kept[0] = f.kept[0] + other; });
    }
    if (team.threads() == kTeamWarp) return;
    team.sync();  // what was there before may still be read
    team.each(state, [&](unsigned thread, F& f) {
      if (thread % kTeamWarp == 0) crossing[thread / kTeamWarp] = f.kept[0];
    });
    team.sync();
    team.each(state, [&](unsigned, F& f) {
      f.kept[0] = crossing[0];
      for (unsigned w = 1; w < team.threads() / kTeamWarp; ++w) f.kept[0] += crossing[w];
    });
  }
  // f.kept[0] = sum over the row of (x - f.kept[1]) squared, or of x.
  template <bool kSquares>
  static SWARMLINE_DEVICE void sum_row(const Args& args, const Team& team, State& state,
                                       std::uint64_t row, float* crossing) {
    const std::uint64_t run = team.threads() * kPerThread;
    team.each(state, [&](unsigned thread, F& f) {
      f.kept[0] = 0;
      for (std::uint64_t first = 0; first < args.width; first += run) {
        const Place place = run_of_row(args, row, first);
        if (args.width > run) load_row(args, thread, place, f.x);
        SWARMLINE_UNROLL
        for (unsigned j = 0; j < kPerThread; ++j) {
          const bool is_there = exists(place, element_of<kV>(thread, j / kV) + j % kV);
          const float centred = f.x[j] - f.kept[1];
          const float term = kSquares ? centred * centred : f.x[j];
          f.kept[0] += is_there ? term : 0.0F;
        }
      }
    });
    add_up(team, state, crossing);
  }

  static SWARMLINE_DEVICE void run(const Team& team, Shared& shared, const Args& args,
                                   std::uint64_t row) {
    const std::uint64_t run = team.threads() * kPerThread;
    auto* const crossing = reinterpret_cast<float*>(shared.crossing);
    const auto width = static_cast<float>(args.width);
    State state;
    team.each(state, [&](unsigned thread, F& f) {
      load_row(args, thread, run_of_row(args, row, 0), f.x);
      for (unsigned i = thread; i < kTeamThreads; i += team.threads()) {
        C::fill(i, shared.tables, true, false);
      }
      f.kept[1] = 0;
    });
    if (args.is_layer) {
      sum_row<false>(args, team, state, row, crossing);
      team.each(state, [&](unsigned, F& f) { f.kept[1] = f.kept[0] / width; });
    }
    sum_row<true>(args, team, state, row, crossing);
    team.each(state,
              [&](unsigned, F& f) { f.kept[2] = inverse_root(f.kept[0] / width + args.eps); });
    for (std::uint64_t first = 0; first < args.width; first += run) {
      normalise(args, team, state, run_of_row(args, row, first), first);
      team.sync();  // tables are there, and `crossing` is free
      rotate_values<C, kV>(team, state);
      // Rows are whole blocks, so the row's scales and codes are a tensor's own.
      Place place = place_at<C>(args.out.scales, args.out.codes, args.spec,
                                row * args.width + first, (row + 1) * args.width);
      encode<C, kV, false, false>(team, state, shared, args.spec, StochasticKey{}, place,
                                  args.non_finite);
    }
  }

  static SWARMLINE_DEVICE void normalise(const Args& args, const Team& team, State& state,
                                         const Place& place, std::uint64_t first) {
    const auto* weights = reinterpret_cast<const std::uint32_t*>(args.weight) + first;
    const auto* biases = reinterpret_cast<const std::uint32_t*>(args.bias);  // null: RMSNorm
    team.each(state, [&](unsigned thread, F& f) {
      if (args.width > team.threads() * kPerThread) load_row(args, thread, place, f.x);
      float weight[kPerThread];
      float bias[kPerThread] = {};
      load<Float32>(weights, place, thread, weight);
      if (args.is_layer) load<Float32>(biases + first, place, thread, bias);
      SWARMLINE_UNROLL
      for (unsigned j = 0; j < kPerThread; ++j) {
        const float scaled = (f.x[j] - f.kept[1]) * f.kept[2] * weight[j];
        const float y = args.is_layer ? scaled + bias[j] : scaled;
        f.x[j] = exists(place, element_of<kV>(thread, j / kV) + j % kV) ? y : 0.0F;
      }
    });
  }
};

}  // namespace swarmline::kernels::cuda
