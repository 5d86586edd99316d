// CudaGradients itself, without a GPU: CUDA's calls are done at once, on the host's memory, and
// kernels run by their bodies, or by their twins where a body does not run on the host.
#include <cstdlib>
#include <cuda_runtime.h>

#include "compression/device_gradients_entry.h"
#include "compression/sparse.h"
#include "kernels/cuda/cuda_lanes.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/pairs_body.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/topk.cuh"
#include "kernels/cuda/topk_body.cuh"
#include "tests/compression/device_gradients_suite.h"
#include "tests/kernels/emulated_teams.h"

// ---- CUDA's calls -------------------------------------------------------------------------------

extern "C" {

cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  if (bytes > 0) std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t) {
  for (size_t row = 0; row < height; ++row)
    std::memcpy(static_cast<char*>(to) + row * to_pitch,
                static_cast<const char*>(from) + row * from_pitch, width);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

}  // extern "C"

namespace swarmline::kernels::cuda {
namespace {

// At a boundary as CUDA's memory, and full of what nobody wrote.
void* allocated(std::size_t bytes) {
  constexpr std::size_t kBoundary = 256;
  void* const memory = std::aligned_alloc(kBoundary, (bytes / kBoundary + 1) * kBoundary);
  std::memset(memory, 0xDD, bytes);
  return memory;
}

class Memory final : public LaneMemory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(allocated(bytes))) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() override { std::free(data_); }
  std::byte* data() const override { return data_; }
  std::size_t size() const override { return bytes_; }

 private:
  const std::size_t bytes_;
  std::byte* const data_;
};

class LanesAtOnce final : public Lanes {
 public:
  Result<std::unique_ptr<LaneMemory>> allocate(LaneMemoryKind, std::size_t bytes) override {
    return std::make_unique<Memory>(bytes);
  }
  Result<std::unique_ptr<LaneEvent>> make_event() override { return std::make_unique<LaneEvent>(); }
  Result<void> copy(Lane, std::byte* to, const std::byte* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Result<void> record(Lane, LaneEvent&) override { return {}; }
  Result<void> wait(Lane, LaneEvent&) override { return {}; }
  Result<void> synchronize(LaneEvent&) override { return {}; }
};

template <typename Body>
cudaError_t run(const typename Body::Args& args, std::uint64_t turns) {
  testing::run_teams<Body>(args, turns, kTeamThreads, 1);
  return cudaSuccess;
}
template <typename Body>
void run_chunks(const typename Body::Args& args) {
  run<Body>(args, (args.n + kChunk - 1) / kChunk);
}
CodesAt in_tiles(const QuantSpec& spec, const void* tiles) {
  return {.scales = static_cast<std::uint8_t*>(const_cast<void*>(tiles)),
          .tile_stride = tile_bytes(spec, kTileElements)};
}
cudaError_t said(bool bad, std::uint32_t* non_finite) {
  if (bad) *non_finite |= 1U;
  return cudaSuccess;
}

}  // namespace

Result<void> checked(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return {};
  return fail(ErrorCode::kDevice, std::string(what));
}
Result<void> DeviceMemory::allocate(std::size_t bytes) {
  std::free(data_);
  data_ = allocated(bytes);
  bytes_ = bytes;
  return {};
}
Result<std::unique_ptr<Lanes>> make_lanes(int) {
  return std::make_unique<LanesAtOnce>();
}

// ---- Kernels ------------------------------------------------------------------------------------

cudaError_t quantize_wire(const QuantSpec& spec, FloatKind source, const void* values,
                          std::size_t n, const StochasticKey* key, void* tiles,
                          std::uint32_t* non_finite, cudaStream_t) {
  EXPECT_EQ(source, FloatKind::kF32);
  QuantizeArgs args{.values = values,
                    .n = n,
                    .spec = spec,
                    .out = in_tiles(spec, tiles),
                    .non_finite = non_finite};
  if (key != nullptr) args.key = *key;
  testing::with_codec(spec.format, [&]<typename C>(C) {
    if (key == nullptr) return run_chunks<QuantizeBody<C, Float32, false>>(args);
    if constexpr (C::kStochastic) run_chunks<QuantizeBody<C, Float32, true>>(args);
  });
  return cudaSuccess;
}
cudaError_t quantize_wire_with_feedback(const QuantSpec& spec, const float* values,
                                        const float* current, float* next, std::size_t n,
                                        const StochasticKey* key, void* tiles,
                                        std::uint32_t* non_finite, cudaStream_t) {
  QuantizeArgs args{.values = values,
                    .n = n,
                    .spec = spec,
                    .out = in_tiles(spec, tiles),
                    .current = current,
                    .next = next,
                    .non_finite = non_finite};
  if (key != nullptr) args.key = *key;
  testing::with_codec(spec.format, [&]<typename C>(C) {
    if (key == nullptr) return run_chunks<FeedbackBody<C, false>>(args);
    if constexpr (C::kStochastic) run_chunks<FeedbackBody<C, true>>(args);
  });
  return cudaSuccess;
}
cudaError_t dequantize_wire(const QuantSpec& spec, const void* tiles, std::size_t n,
                            FloatKind target, void* values, std::uint32_t* non_finite,
                            cudaStream_t) {
  EXPECT_EQ(target, FloatKind::kF32);
  testing::with_codec(spec.format, [&]<typename C>(C) {
    run_chunks<DequantizeBody<C, Float32>>({.values = values,
                                            .n = n,
                                            .spec = spec,
                                            .in = in_tiles(spec, tiles),
                                            .non_finite = non_finite});
  });
  return cudaSuccess;
}

cudaError_t fp32_to_fp16(const float* from, std::uint16_t* to, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t) {
  return said(kernels::fp32_to_fp16(from, to, n), non_finite);
}
cudaError_t fp16_to_fp32(const std::uint16_t* from, float* to, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t) {
  return said(kernels::fp16_to_fp32(from, to, n), non_finite);
}
cudaError_t fp32_to_bf16(const float* from, std::uint16_t* to, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t) {
  return said(kernels::fp32_to_bf16(from, to, n), non_finite);
}
cudaError_t bf16_to_fp32(const std::uint16_t* from, float* to, std::size_t n,
                         std::uint32_t* non_finite, cudaStream_t) {
  return said(kernels::bf16_to_fp32(from, to, n), non_finite);
}

cudaError_t add(const float* a, const float* b, float* sum, std::size_t n, cudaStream_t) {
  const PairsArgs args{.a = a, .b = b, .out = sum, .n = n};
  return n == 0 ? cudaSuccess : run<PairsBody<Sum>>(args, pairs_turns(args));
}
cudaError_t lost_values(const float* values, const float* decoded, float* lost, std::size_t n,
                        cudaStream_t) {
  const PairsArgs args{.a = values, .b = decoded, .out = lost, .n = n};
  return n == 0 ? cudaSuccess : run<PairsBody<Lost>>(args, pairs_turns(args));
}

cudaError_t select_largest_wire(const float* values, std::size_t n, std::uint32_t kept, void* tiles,
                                std::uint32_t* non_finite, cudaStream_t) {
  bool bad = false;
  for (std::size_t begin = 0; begin < n; begin += kTileElements) {
    const std::size_t size = std::min<std::size_t>(kTileElements, n - begin);
    auto* const tile =
        static_cast<std::byte*>(tiles) + begin / kTileElements * topk_tile_bytes(kept);
    const std::size_t here = kept_of(size, kept);
    bad |= select_largest(values + begin, size, here, tile, tile + topk_values_at(here));
  }
  return said(bad, non_finite);
}
cudaError_t scatter_wire(const void* tiles, std::size_t n, std::uint32_t kept, float* values,
                         std::uint32_t* non_finite, cudaStream_t) {
  if (n == 0) return cudaSuccess;
  std::memset(values, 0, n * sizeof(float));
  return run<ScatterBody>({.tiles = static_cast<const std::uint8_t*>(tiles),
                           .n = n,
                           .kept = kept,
                           .values = values,
                           .non_finite = non_finite},
                          tiles_of(n));
}

}  // namespace swarmline::kernels::cuda

extern "C" {
extern swarmline::MakeDeviceGradients* const swarmline_cuda_make_gradients;
}

namespace swarmline::testing {
namespace {

class Emulated final : public GradientsDevice {
 public:
  DeviceGradients& gradients() override { return *gradients_; }
  DeviceAddress allocate(std::size_t bytes) override {
    return static_cast<DeviceAddress>(kernels::cuda::allocated(bytes));
  }
  void free(DeviceAddress memory) override { std::free(memory); }
  void bring(BytesView bytes, DeviceAddress to) override { std::ranges::copy(bytes, to); }
  void fetch(DeviceAddress from, MutableBytes bytes) override {
    std::copy_n(from, bytes.size(), bytes.data());
  }

 private:
  const std::unique_ptr<DeviceGradients> gradients_ = std::move(*swarmline_cuda_make_gradients(0));
};

Result<std::unique_ptr<GradientsDevice>> make_emulated() {
  return std::make_unique<Emulated>();
}

INSTANTIATE_TEST_SUITE_P(Emulated, DeviceGradientsSuite, ::testing::Values(&make_emulated));

}  // namespace
}  // namespace swarmline::testing
