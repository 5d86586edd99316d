// The digest as the CUDA kernels make it, their bodies run on the host team by team.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "kernels/cuda/xxh3_body.cuh"

namespace swarmline::testing {

inline void emulate(const kernels::cuda::HashPieces& args, const kernels::cuda::Team& team) {
  const std::uint64_t a_team = team.threads() / kernels::xxh3::kLanes;
  for (std::uint64_t turn = 0; turn * a_team < kernels::cuda::pieces_of(args); ++turn)
    kernels::cuda::hash_pieces_body(team, args, turn);
}

inline std::uint64_t emulated_digest(
    BytesView bytes, const kernels::cuda::Team& team = kernels::cuda::Team(kernels::xxh3::kLanes)) {
  std::vector<std::uint64_t> words(bytes.size() / kernels::kDigestPiece + 2);
  std::uint64_t result = 0;
  const auto steps = kernels::cuda::digest_steps(bytes.data(), bytes.size(), words.data(), &result);
  emulate(steps.pieces, team);
  emulate(steps.all, team);
  return result;
}

}  // namespace swarmline::testing
