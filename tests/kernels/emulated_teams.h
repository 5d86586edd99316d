// The bodies of CUDA kernels, run on the host team by team, and what they are templates of.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/team.cuh"

namespace swarmline::testing {

// `stride`: the order of a team's threads (team.cuh).
template <typename Body>
void run_teams(const typename Body::Args& args, std::uint64_t turns, unsigned threads,
               unsigned stride) {
  const kernels::cuda::Team team(threads, stride);
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    typename Body::Shared shared;
    std::memset(&shared, 0xFF, sizeof shared);  // as undefined as on a device, and loud
    Body::run(team, shared, args, turn);
  }
}

// f(codec of the format), f(type of the elements).
template <typename F>
void with_codec(kernels::QuantFormat format, F f) {
  switch (format) {
    case kernels::QuantFormat::kLin8:
      return f(kernels::cuda::Lin8{});
    case kernels::QuantFormat::kDyn8:
      return f(kernels::cuda::Dyn8<true>{});
    case kernels::QuantFormat::kDyn8Unsigned:
      return f(kernels::cuda::Dyn8<false>{});
    case kernels::QuantFormat::kH8:
      return f(kernels::cuda::H8{});
    case kernels::QuantFormat::kE4M3:
      return f(kernels::cuda::Fp8E4M3{});
    case kernels::QuantFormat::kE5M2:
      return f(kernels::cuda::Fp8E5M2{});
    case kernels::QuantFormat::kInt4:
      return f(kernels::cuda::Int4{});
    case kernels::QuantFormat::kH4:
      return f(kernels::cuda::H4{});
  }
}
template <typename F>
void with_type(kernels::FloatKind kind, F f) {
  if (kind == kernels::FloatKind::kF32) return f(kernels::cuda::Float32{});
  if (kind == kernels::FloatKind::kF16) return f(kernels::cuda::Float16{});
  f(kernels::cuda::Bfloat16{});
}

}  // namespace swarmline::testing
