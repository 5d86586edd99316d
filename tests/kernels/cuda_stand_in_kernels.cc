// Kernels of a stand-in for CUDA (cuda_stand_in.h): their bodies, or their twins where a body does
// not run on the host, queued as a launch is.

#include <cstring>

#include <gtest/gtest.h>

#include "compression/sparse.h"
#include "kernels/cuda/error_sums.cuh"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/pairs_body.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/topk.cuh"
#include "kernels/cuda/topk_body.cuh"
#include "tests/kernels/cuda_stand_in.h"
#include "tests/kernels/emulated_teams.h"

namespace swarmline::kernels::cuda {
namespace {

using testing::queue_kernel;

template <typename Body>
void run(const typename Body::Args& args, std::uint64_t turns) {
  testing::run_teams<Body>(args, turns, kTeamThreads, 1);
}
template <typename Body>
void run_chunks(const typename Body::Args& args) {
  run<Body>(args, (args.n + kChunk - 1) / kChunk);
}
CodesAt in_tiles(const QuantSpec& spec, const void* tiles) {
  return {.scales = static_cast<std::uint8_t*>(const_cast<void*>(tiles)),
          .tile_stride = tile_bytes(spec, kTileElements)};
}
// fp32 or bf16, as what a stage sends.
template <typename F>
void with_element(FloatKind kind, F f) {
  ASSERT_NE(kind, FloatKind::kF16);
  if (kind == FloatKind::kF32) return f(Float32{});
  f(Bfloat16{});
}
template <typename Convert, typename From, typename To>
cudaError_t convert(Convert twin, const From* from, To* to, std::size_t n,
                    std::uint32_t* non_finite, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return queue_kernel(stream, {from, to, non_finite}, [=] {
    if (twin(from, to, n) && non_finite != nullptr) *non_finite |= 1U;
  });
}
template <typename Body>
cudaError_t queue_pairs(const PairsArgs& args, cudaStream_t stream) {
  if (args.n == 0) return cudaSuccess;
  return queue_kernel(stream, {args.a, args.b, args.out},
                      [=] { run<Body>(args, pairs_turns(args)); });
}

}  // namespace

cudaError_t quantize_wire(const QuantSpec& spec, FloatKind source, const void* values,
                          std::size_t n, const StochasticKey* key, void* tiles,
                          std::uint32_t* non_finite, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  QuantizeArgs args{.values = values,
                    .n = n,
                    .spec = spec,
                    .out = in_tiles(spec, tiles),
                    .non_finite = non_finite};
  if (key != nullptr) args.key = *key;
  return queue_kernel(stream, {values, tiles, non_finite}, [=, random = key != nullptr] {
    testing::with_codec(args.spec.format, [&]<typename C>(C) {
      with_element(source, [&]<typename Type>(Type) {
        if (!random) return run_chunks<QuantizeBody<C, Type, false>>(args);
        if constexpr (C::kStochastic) run_chunks<QuantizeBody<C, Type, true>>(args);
      });
    });
  });
}
cudaError_t quantize_wire_with_feedback(const QuantSpec& spec, const float* values,
                                        const float* current, float* next, std::size_t n,
                                        const StochasticKey* key, void* tiles,
                                        std::uint32_t* non_finite, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  QuantizeArgs args{.values = values,
                    .n = n,
                    .spec = spec,
                    .out = in_tiles(spec, tiles),
                    .current = current,
                    .next = next,
                    .non_finite = non_finite};
  if (key != nullptr) args.key = *key;
  return queue_kernel(stream, {values, current, next, tiles, non_finite},
                      [=, random = key != nullptr] {
                        testing::with_codec(args.spec.format, [&]<typename C>(C) {
                          if (!random) return run_chunks<FeedbackBody<C, false>>(args);
                          if constexpr (C::kStochastic) run_chunks<FeedbackBody<C, true>>(args);
                        });
                      });
}
cudaError_t dequantize_wire(const QuantSpec& spec, const void* tiles, std::size_t n,
                            FloatKind target, void* values, std::uint32_t* non_finite,
                            cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return queue_kernel(stream, {tiles, values, non_finite}, [=] {
    testing::with_codec(spec.format, [&]<typename C>(C) {
      with_element(target, [&]<typename Type>(Type) {
        run_chunks<DequantizeBody<C, Type>>({.values = values,
                                             .n = n,
                                             .spec = spec,
                                             .in = in_tiles(spec, tiles),
                                             .non_finite = non_finite});
      });
    });
  });
}

cudaError_t fp32_to_fp16(const float* from, std::uint16_t* to, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  return convert(&kernels::fp32_to_fp16, from, to, n, non_finite, stream);
}
cudaError_t fp16_to_fp32(const std::uint16_t* from, float* to, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  return convert(&kernels::fp16_to_fp32, from, to, n, non_finite, stream);
}
cudaError_t fp32_to_bf16(const float* from, std::uint16_t* to, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  return convert(&kernels::fp32_to_bf16, from, to, n, non_finite, stream);
}
cudaError_t bf16_to_fp32(const std::uint16_t* from, float* to, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  return convert(&kernels::bf16_to_fp32, from, to, n, non_finite, stream);
}

cudaError_t add(const float* a, const float* b, float* sum, std::size_t n, cudaStream_t stream) {
  return queue_pairs<PairsBody<Sum>>({.a = a, .b = b, .out = sum, .n = n}, stream);
}
cudaError_t lost_values(const float* values, const float* decoded, float* lost, std::size_t n,
                        cudaStream_t stream) {
  return queue_pairs<PairsBody<Lost>>({.a = values, .b = decoded, .out = lost, .n = n}, stream);
}

cudaError_t select_largest_wire(const float* values, std::size_t n, std::uint32_t kept, void* tiles,
                                std::uint32_t* non_finite, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return queue_kernel(stream, {values, tiles, non_finite}, [=] {
    for (std::size_t begin = 0; begin < n; begin += kTileElements) {
      const std::size_t size = std::min<std::size_t>(kTileElements, n - begin);
      auto* const tile =
          static_cast<std::byte*>(tiles) + begin / kTileElements * topk_tile_bytes(kept);
      const std::size_t here = kept_of(size, kept);
      if (select_largest(values + begin, size, here, tile, tile + topk_values_at(here)))
        *non_finite |= 1U;
    }
  });
}
cudaError_t scatter_wire(const void* tiles, std::size_t n, std::uint32_t kept, float* values,
                         std::uint32_t* non_finite, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return queue_kernel(stream, {tiles, values, non_finite}, [=] {
    std::memset(values, 0, n * sizeof(float));
    run<ScatterBody>({.tiles = static_cast<const std::uint8_t*>(tiles),
                      .n = n,
                      .kept = kept,
                      .values = values,
                      .non_finite = non_finite},
                     tiles_of(n));
  });
}

cudaError_t error_sums_workspace(std::size_t, std::size_t& bytes) {
  bytes = 1;
  return cudaSuccess;
}
cudaError_t error_sums(const float* values, const float* decoded, std::size_t n, void* workspace,
                       std::size_t, ErrorSums* result, cudaStream_t stream) {
  return queue_kernel(stream, {values, decoded, workspace, result}, [=] {
    *result = {};
    for (std::size_t i = 0; i < n; ++i) {
      const double x = values[i];
      const double d = decoded[i] - x;
      result->squared_error += d * d;
      result->squared_norm += x * x;
    }
  });
}

}  // namespace swarmline::kernels::cuda
