// 16-bit codecs in tiles.

#include "kernels/cuda/halves_body.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/team_launch.cuh"

namespace swarmline::kernels::cuda {
namespace {

template <bool kNarrow>
cudaError_t launch_halves(FloatKind code, FloatKind elements, const HalvesArgs& args,
                          cudaStream_t stream) {
  if (args.n == 0) return cudaSuccess;
  return with_halves(code, elements, [&]<typename Code, typename Value>(Code, Value) {
    return launch_turns<HalvesBody<Code, Value, kNarrow>>(args, (args.n + kChunk - 1) / kChunk,
                                                          kTeamThreads, stream);
  });
}

}  // namespace

cudaError_t narrow_wire(FloatKind code, FloatKind source, const void* values, std::size_t n,
                        void* tiles, std::uint32_t* non_finite, cudaStream_t stream) {
  return launch_halves<true>(code, source,
                             {.from = static_cast<const std::byte*>(values),
                              .to = static_cast<std::byte*>(tiles),
                              .n = n,
                              .non_finite = non_finite},
                             stream);
}
cudaError_t widen_wire(FloatKind code, const void* tiles, std::size_t n, FloatKind target,
                       void* values, std::uint32_t* non_finite, cudaStream_t stream) {
  return launch_halves<false>(code, target,
                              {.from = static_cast<const std::byte*>(tiles),
                               .to = static_cast<std::byte*>(values),
                               .n = n,
                               .non_finite = non_finite},
                              stream);
}

}  // namespace swarmline::kernels::cuda
