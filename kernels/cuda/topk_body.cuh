// topk's tiles (topk.cuh): where things lie in them, and the body of the kernel that reads them.
#pragma once

#include "kernels/cuda/quantize_body.cuh"
#include "kernels/cuda/tiles.h"
#include "kernels/element.h"

namespace swarmline::kernels::cuda {

SWARMLINE_ELEMENT std::uint64_t topk_values_at(std::uint64_t kept) {
  return aligned_up(2 * kept, kTileAlignment);
}
SWARMLINE_ELEMENT std::uint64_t topk_tile_bytes(std::uint64_t kept) {
  return aligned_up(topk_values_at(kept) + 4 * kept + kTileHashBytes, kTileAlignment);
}
SWARMLINE_ELEMENT std::uint64_t kept_of(std::uint64_t elements, std::uint32_t kept) {
  return (elements * kept + kTileElements - 1) / kTileElements;
}
SWARMLINE_ELEMENT std::uint64_t tiles_of(std::uint64_t n) {
  return (n + kTileElements - 1) / kTileElements;
}

struct ScatterArgs {
  const std::uint8_t* tiles = nullptr;
  std::uint64_t n = 0;
  std::uint32_t kept = 0;
  float* values = nullptr;  // zeros
  std::uint32_t* non_finite = nullptr;
};

// A turn is a tile.
struct ScatterBody {
  using Args = ScatterArgs;
  struct Shared {};
  static constexpr bool kManyTeams = false;
  struct State {};
  static SWARMLINE_DEVICE void run(const Team& team, Shared&, const Args& args,
                                   std::uint64_t tile) {
    const std::uint64_t begin = tile * kTileElements;
    const std::uint64_t size = args.n - begin < kTileElements ? args.n - begin : kTileElements;
    const auto kept = static_cast<unsigned>(kept_of(size, args.kept));
    const std::uint8_t* const base = args.tiles + tile * topk_tile_bytes(args.kept);
    const auto* const positions = reinterpret_cast<const std::uint16_t*>(base);
    const auto* const values = reinterpret_cast<const float*>(base + topk_values_at(kept));
    Team::PerThread<State> state;
    team.each(state, [&](unsigned thread, State&) {
      bool bad = false;
      for (unsigned k = thread; k < kept; k += team.threads()) {
        args.values[begin + positions[k]] = values[k];
        bad |= not_finite(values[k]);
      }
      report_non_finite(args.non_finite, bad);
    });
  }
};

}  // namespace swarmline::kernels::cuda
