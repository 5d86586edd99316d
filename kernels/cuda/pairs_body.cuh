// Bodies of the kernels that make one value out of two, element by element (kernels.cuh): what a
// team does in one turn. Written over Team, so that tests run them on the host.
#pragma once

#include "kernels/cuda/quantize_body.cuh"
#include "kernels/element.h"

namespace swarmline::kernels::cuda {

struct PairsArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  float* out = nullptr;  // or one of them
  std::uint64_t n = 0;
};

struct Sum {
  static SWARMLINE_DEVICE float of(float a, float b) { return a + b; }
};
struct Lost {
  static SWARMLINE_DEVICE float of(float value, float decoded) {
    const float left = value - decoded;
    return not_finite(left) ? 0.0F : left;
  }
};

// The first turn has what lies before a 16-byte boundary of `out`, so that what begins anywhere is
// accessed by 16 bytes all the same.
SWARMLINE_ELEMENT std::uint64_t pairs_head(const PairsArgs& args) {
  constexpr std::uint64_t kPerLoad = Float32::kPerLoad;
  const std::uint64_t at = reinterpret_cast<std::uintptr_t>(args.out) / sizeof(float);
  const std::uint64_t head = (kPerLoad - at % kPerLoad) % kPerLoad;
  return head < args.n ? head : args.n;
}
SWARMLINE_ELEMENT std::uint64_t pairs_turns(const PairsArgs& args) {
  return 1 + (args.n - pairs_head(args) + kChunk - 1) / kChunk;
}

template <typename Of>
struct PairsBody {
  using Args = PairsArgs;
  struct Shared {};
  static constexpr bool kManyTeams = false;
  struct State {
    float a[kPerThread];
    float b[kPerThread];
  };
  static SWARMLINE_DEVICE void run(const Team& team, Shared&, const Args& args,
                                   std::uint64_t turn) {
    const std::uint64_t head = pairs_head(args);
    const std::uint64_t first = turn == 0 ? 0 : head + (turn - 1) * kChunk;
    const std::uint64_t rest = (turn == 0 ? head : args.n) - first;
    Place place{};
    place.tensor_first = first;
    place.count = rest < kChunk ? static_cast<unsigned>(rest) : kChunk;
    const bool aligned = is_aligned(args.a + first, 16) && is_aligned(args.b + first, 16) &&
                         is_aligned(args.out + first, 16);
    with_place(place, aligned, [&](const auto& here) { work(team, args, here); });
  }
  template <typename P>
  static SWARMLINE_DEVICE void work(const Team& team, const Args& args, const P& place) {
    Team::PerThread<State> state;
    team.each(state, [&](unsigned thread, State& s) {
      load_chunk<Float32>(args.a, place, thread, s.a);
      load_chunk<Float32>(args.b, place, thread, s.b);
      SWARMLINE_UNROLL
      for (unsigned j = 0; j < kPerThread; ++j) s.a[j] = Of::of(s.a[j], s.b[j]);
      store_chunk<Float32>(args.out, place, thread, s.a);
    });
  }
};

}  // namespace swarmline::kernels::cuda
