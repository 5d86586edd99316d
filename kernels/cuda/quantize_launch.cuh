// One format's kernels, made by each quantize_*.cu, and their launches.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/norm_body.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/quantize_body.cuh"
#include "kernels/cuda/team_launch.cuh"

namespace swarmline::kernels::cuda {

// The launches of one format; null where it has no such kernel. First index of `quantize`: whether
// rounding is stochastic.
struct FormatLaunches {
  cudaError_t (*quantize[2][3])(const QuantizeArgs&, cudaStream_t) = {};
  cudaError_t (*dequantize[3])(const DequantizeArgs&, cudaStream_t) = {};
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
  all.feedback[kStochastic] = launch_chunks<FeedbackBody<C, kStochastic>>;
}
template <typename C>
FormatLaunches launches() {
  FormatLaunches all;
  add_quantizers<C, false>(all);
  if constexpr (C::kStochastic) add_quantizers<C, true>(all);
  all.dequantize[static_cast<int>(FloatKind::kF32)] = launch_chunks<DequantizeBody<C, Float32>>;
  all.dequantize[static_cast<int>(FloatKind::kF16)] = launch_chunks<DequantizeBody<C, Float16>>;
  all.dequantize[static_cast<int>(FloatKind::kBf16)] = launch_chunks<DequantizeBody<C, Bfloat16>>;
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
