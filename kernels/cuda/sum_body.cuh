// Sums in the order of kernels.h: a warp sums a block of kSumBlock terms, its lanes are the lanes
// of that order. Written over Team, so that tests run it on the host.
#pragma once

#include "kernels/cuda/team.cuh"
#include "kernels/element.h"
#include "kernels/kernels.h"

namespace swarmline::kernels::cuda {

static_assert(kSumLanes == kTeamWarp, "a warp is one set of lanes");

struct LaneSum {
  double sum;
};

// Every lane of a warp gets its warp's fold: sums of two are the same whichever is added to which.
template <typename State, typename Member>
SWARMLINE_DEVICE void fold_warps(const Team& team, State& state, Member member) {
  for (unsigned width = kTeamWarp / 2; width > 0; width /= 2) {
    team.exchange_xor(
        state, width, [member](const auto& s) { return s.*member; },
        [member](unsigned, auto& s, double other) { s.*member += other; });
  }
}

struct Square {
  template <typename T>
  static SWARMLINE_DEVICE double of(T value) {
    const double wide = static_cast<double>(value);
    return wide * wide;
  }
};
struct Same {
  static SWARMLINE_DEVICE double of(double value) { return value; }
};

SWARMLINE_ELEMENT std::uint64_t sum_blocks_of(std::uint64_t n) {
  return (n + kSumBlock - 1) / kSumBlock;
}

// A team sums kTeamWarps blocks in a turn.
template <typename Term, typename T>
struct SumBody {
  struct Args {
    const T* values = nullptr;
    std::uint64_t n = 0;
    double* sums = nullptr;  // one a block
  };
  struct Shared {};
  static constexpr bool kManyTeams = false;
  static SWARMLINE_DEVICE void run(const Team& team, Shared&, const Args& args,
                                   std::uint64_t turn) {
    const auto block_of = [turn](unsigned thread) {
      return turn * kTeamWarps + thread / kTeamWarp;
    };
    Team::PerThread<LaneSum> state;
    team.each(state, [&](unsigned thread, LaneSum& s) {
      const std::uint64_t begin = block_of(thread) * kSumBlock;
      const std::uint64_t end = begin + kSumBlock < args.n ? begin + kSumBlock : args.n;
      s.sum = 0;
      for (std::uint64_t i = begin + thread % kTeamWarp; i < end; i += kTeamWarp)
        s.sum += Term::of(args.values[i]);
    });
    fold_warps(team, state, &LaneSum::sum);
    team.each(state, [&](unsigned thread, LaneSum& s) {
      const std::uint64_t block = block_of(thread);
      if (thread % kTeamWarp == 0 && block < sum_blocks_of(args.n)) args.sums[block] = s.sum;
    });
  }
};

}  // namespace swarmline::kernels::cuda
