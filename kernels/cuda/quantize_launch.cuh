// One format's kernels, made by each quantize_*.cu, and their launches.
#pragma once

#include <algorithm>
#include <cuda_runtime.h>

#include "kernels/cuda/norm_body.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/quantize_body.cuh"

namespace swarmline::kernels::cuda {

// The launches of one format; null where it has no such kernel. First index of `quantize`: whether
// rounding is stochastic.
struct FormatLaunches {
  cudaError_t (*quantize[2][3])(const QuantizeArgs&, cudaStream_t) = {};
  cudaError_t (*dequantize[3])(const DequantizeArgs&, cudaStream_t) = {};
  cudaError_t (*axpy)(const DequantizeArgs&, cudaStream_t) = nullptr;
  cudaError_t (*mean[2])(const MeanArgs&, cudaStream_t) = {};
  cudaError_t (*feedback[2])(const QuantizeArgs&, cudaStream_t) = {};
  cudaError_t (*normalize[3])(const NormArgs&, cudaStream_t) = {};
};
FormatLaunches lin8_launches();
FormatLaunches h8_launches();
FormatLaunches dyn8_launches();
FormatLaunches dyn8_unsigned_launches();
FormatLaunches e4m3_launches();
FormatLaunches e5m2_launches();
FormatLaunches int4_launches();
FormatLaunches h4_launches();

#if defined(SWARMLINE_MAKE_LAUNCHES)

inline constexpr std::uint64_t kTeamsMax = 0x7FFFFFFF;  // of one launch

// Teams a multiprocessor should have room for, which bounds their registers; 0: as it comes. A
// quantizer waits for its values before it has anything to do, so that others have to load.
template <typename Body>
constexpr unsigned teams_wanted() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return Body::kManyTeams ? 6 : 0;
#else
  return 0;
#endif
}

template <typename Body>
__global__ void __launch_bounds__(kTeamThreads, teams_wanted<Body>())
    team_kernel(const __grid_constant__ typename Body::Args args, std::uint64_t first) {
  __shared__ typename Body::Shared shared;
  Body::run(Team(), shared, args, first + blockIdx.x);
}
// A team for each turn.
template <typename Body>
cudaError_t launch_turns(const typename Body::Args& args, std::uint64_t turns, unsigned threads,
                         cudaStream_t stream) {
  for (std::uint64_t first = 0; first < turns; first += kTeamsMax) {
    const auto teams = static_cast<unsigned>(std::min(turns - first, kTeamsMax));
    team_kernel<Body><<<teams, threads, 0, stream>>>(args, first);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
template <typename Body>
cudaError_t launch_chunks(const typename Body::Args& args, cudaStream_t stream) {
  return launch_turns<Body>(args, (args.n + kChunk - 1) / kChunk, kTeamThreads, stream);
}
template <typename Body>
cudaError_t launch_rows(const NormArgs& args, cudaStream_t stream) {
  return launch_turns<Body>(args, args.rows, norm_threads(args.width), stream);
}

template <typename C, bool kStochastic>
void add_quantizers(FormatLaunches& all) {
  all.quantize[kStochastic][static_cast<int>(FloatKind::kF32)] =
      launch_chunks<QuantizeBody<C, Float32, kStochastic>>;
  all.quantize[kStochastic][static_cast<int>(FloatKind::kF16)] =
      launch_chunks<QuantizeBody<C, Float16, kStochastic>>;
  all.quantize[kStochastic][static_cast<int>(FloatKind::kBf16)] =
      launch_chunks<QuantizeBody<C, Bfloat16, kStochastic>>;
  all.mean[kStochastic] = launch_chunks<MeanBody<C, kStochastic>>;
  all.feedback[kStochastic] = launch_chunks<FeedbackBody<C, kStochastic>>;
}
template <typename C>
FormatLaunches launches() {
  FormatLaunches all;
  add_quantizers<C, false>(all);
  if constexpr (C::kStochastic) add_quantizers<C, true>(all);
  all.dequantize[static_cast<int>(FloatKind::kF32)] =
      launch_chunks<DequantizeBody<C, Float32, false>>;
  all.dequantize[static_cast<int>(FloatKind::kF16)] =
      launch_chunks<DequantizeBody<C, Float16, false>>;
  all.dequantize[static_cast<int>(FloatKind::kBf16)] =
      launch_chunks<DequantizeBody<C, Bfloat16, false>>;
  all.axpy = launch_chunks<DequantizeBody<C, Float32, true>>;
  return all;
}
template <typename C>
FormatLaunches launches_with_norms() {
  FormatLaunches all = launches<C>();
  all.normalize[static_cast<int>(FloatKind::kF32)] = launch_rows<NormBody<C, Float32>>;
  all.normalize[static_cast<int>(FloatKind::kF16)] = launch_rows<NormBody<C, Float16>>;
  all.normalize[static_cast<int>(FloatKind::kBf16)] = launch_rows<NormBody<C, Bfloat16>>;
  return all;
}

#endif

}  // namespace swarmline::kernels::cuda
