// The CUDA quantization kernels on a device against the CPU's, bit for bit. Skips, with the reason,
// without a GPU; cuda_emulation_test runs the same cases on the host.
#include <cstring>
#include <deque>

#include "kernels/cuda/quantize.cuh"
#include "tests/kernels/cuda_quantize_cases.h"
#include "tests/kernels/device_array.h"

namespace swarmline::testing {
namespace {

namespace cuda = kernels::cuda;
using kernels::FloatKind;
using kernels::QuantSpec;
using kernels::StochasticKey;

// Copies of host arrays on the device, and back at the end.
class Arrays {
 public:
  ~Arrays() {
    for (Array& array : arrays_) {
      if (array.back != nullptr) array.device.copy_to(array.back);
    }
  }
  const std::uint8_t* in(const void* host, std::size_t bytes) { return add(host, bytes, nullptr); }
  std::uint8_t* in_out(void* host, std::size_t bytes) { return add(host, bytes, host); }

 private:
  struct Array {
    DeviceBytes device;
    void* back;
    Array(const void* host, std::size_t bytes, void* to)
        : device(host, bytes, reinterpret_cast<std::uintptr_t>(host) % 16), back(to) {}
  };
  std::uint8_t* add(const void* host, std::size_t bytes, void* back) {
    return arrays_.emplace_back(host, bytes, back).device.data();
  }
  std::deque<Array> arrays_;
};

std::size_t width_of(FloatKind kind) {
  return kind == FloatKind::kF32 ? 4 : 2;
}
std::size_t scales_bytes(const QuantSpec& spec, std::size_t n) {
  return quant_blocks(spec, n) * scale_bytes(spec.scales);
}

class OnDevice : public CudaQuantizer {
 public:
  explicit OnDevice(cudaStream_t stream) : stream_(stream) {}

  bool quantize(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                const StochasticKey* key, void* scales, std::uint8_t* codes) override {
    return run([&](Arrays& a, std::uint32_t* bad) {
      return cuda::quantize(spec, source, a.in(values, n * width_of(source)), n, key,
                            a.in_out(scales, scales_bytes(spec, n)),
                            a.in_out(codes, code_bytes(spec, n)), bad, stream_);
    });
  }
  bool dequantize(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                  std::size_t n, FloatKind target, void* values) override {
    return run([&](Arrays& a, std::uint32_t* bad) {
      return cuda::dequantize(spec, a.in(scales, scales_bytes(spec, n)),
                              a.in(codes, code_bytes(spec, n)), n, target,
                              a.in_out(values, n * width_of(target)), bad, stream_);
    });
  }
  bool feedback(const QuantSpec& spec, const float* values, const float* current, float* next,
                std::size_t n, const StochasticKey* key, void* tiles) override {
    return run([&](Arrays& a, std::uint32_t* bad) {
      const std::size_t bytes = n * sizeof(float);
      auto* const out = reinterpret_cast<float*>(a.in_out(next, bytes));
      return cuda::quantize_wire_with_feedback(
          spec, reinterpret_cast<const float*>(a.in(values, bytes)),
          current == next ? out : reinterpret_cast<const float*>(a.in(current, bytes)), out, n, key,
          a.in_out(tiles, cuda::wire_tiles_bytes(spec, n)), bad, stream_);
    });
  }
  bool quantize_wire(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                     const StochasticKey* key, void* tiles) override {
    return run([&](Arrays& a, std::uint32_t* bad) {
      return cuda::quantize_wire(spec, source, a.in(values, n * width_of(source)), n, key,
                                 a.in_out(tiles, cuda::wire_tiles_bytes(spec, n)), bad, stream_);
    });
  }
  bool dequantize_wire(const QuantSpec& spec, const void* tiles, std::size_t n, FloatKind target,
                       void* values) override {
    return run([&](Arrays& a, std::uint32_t* bad) {
      return cuda::dequantize_wire(spec, a.in(tiles, cuda::wire_tiles_bytes(spec, n)), n, target,
                                   a.in_out(values, n * width_of(target)), bad, stream_);
    });
  }
  bool normalize(const QuantSpec& spec, const NormCase& norm, FloatKind source, const void* values,
                 std::size_t rows, std::size_t width, void* scales, std::uint8_t* codes) override {
    return run([&](Arrays& a, std::uint32_t* bad) {
      const std::size_t bytes = width * sizeof(float);
      const cuda::Norm on_device{
          .kind = norm.is_layer ? cuda::NormKind::kLayer : cuda::NormKind::kRms,
          .eps = norm.eps,
          .weight = reinterpret_cast<const float*>(a.in(norm.weight, bytes)),
          .bias = norm.is_layer ? reinterpret_cast<const float*>(a.in(norm.bias, bytes)) : nullptr};
      const std::size_t n = rows * width;
      return cuda::normalize_quantize(spec, on_device, source, a.in(values, n * width_of(source)),
                                      rows, width, a.in_out(scales, scales_bytes(spec, n)),
                                      a.in_out(codes, code_bytes(spec, n)), bad, stream_);
    });
  }

 private:
  template <typename F>
  bool run(F f) {
    std::uint32_t bad = 0;
    {
      Arrays arrays;
      auto* const flag = reinterpret_cast<std::uint32_t*>(arrays.in_out(&bad, sizeof bad));
      const cudaError_t status = f(arrays, flag);
      EXPECT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
      EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    }
    return bad != 0;
  }
  cudaStream_t stream_;
};

class CudaQuantize : public CudaTest {};

TEST_F(CudaQuantize, Sizes) {
  OnDevice device(stream_);
  check_sizes(device, true);
}
TEST_F(CudaQuantize, Stochastic) {
  OnDevice device(stream_);
  check_stochastic(device);
}
TEST_F(CudaQuantize, NonFinite) {
  OnDevice device(stream_);
  check_non_finite(device);
}
TEST_F(CudaQuantize, ForeignCodes) {
  OnDevice device(stream_);
  check_foreign_codes(device);
}
TEST_F(CudaQuantize, Feedback) {
  OnDevice device(stream_);
  check_feedback(device);
}
TEST_F(CudaQuantize, Wire) {
  OnDevice device(stream_);
  check_wire(device);
}
TEST_F(CudaQuantize, Norms) {
  OnDevice device(stream_);
  check_norms(device);
}

TEST_F(CudaQuantize, Floats) {
  OnDevice device(stream_);
  check_floats(device, 257);
}

// What no buffer of a test can hold is refused before anything is launched.
TEST_F(CudaQuantize, RefusesWhatIsNotValid) {
  const StochasticKey key;
  const QuantSpec lin8{kernels::QuantFormat::kLin8, 64};
  EXPECT_EQ(cuda::quantize({kernels::QuantFormat::kLin8, 48}, FloatKind::kF32, nullptr, 0, nullptr,
                           nullptr, nullptr, nullptr, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cuda::quantize({kernels::QuantFormat::kDyn8, 64}, FloatKind::kF32, nullptr, 0, &key,
                           nullptr, nullptr, nullptr, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cuda::quantize(lin8, FloatKind::kF32, nullptr, 0, nullptr, nullptr, nullptr, nullptr,
                           stream_),
            cudaSuccess);
}

// More elements than 32 bits count, bf16: the last of them come back as they would alone.
TEST_F(CudaQuantize, MoreThanTwoToTheThirtyOneElements) {
  constexpr std::size_t kN = (std::size_t{1} << 31) + 4096 + 7;
  constexpr std::size_t kTail = 4096 + 7;
  const QuantSpec spec{kernels::QuantFormat::kLin8, 256};
  std::size_t free_bytes = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
  if (free_bytes < 4 * kN) GTEST_SKIP() << "needs " << 4 * kN << " bytes of device memory";
  std::vector<std::uint16_t> tail(kTail);
  for (std::size_t i = 0; i < kTail; ++i) tail[i] = static_cast<std::uint16_t>(0x3F00 + i % 200);
  DeviceBytes values(2 * kN), scales(scales_bytes(spec, kN)), codes(kN);
  auto* const device_tail = values.data() + 2 * (kN - kTail);
  ASSERT_EQ(cudaMemcpy(device_tail, tail.data(), 2 * kTail, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cuda::quantize(spec, FloatKind::kBf16, values.data(), kN, nullptr, scales.data(),
                           codes.data(), nullptr, stream_),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  std::vector<std::uint8_t> got(kTail), expected(kTail);
  ASSERT_EQ(cudaMemcpy(got.data(), codes.data() + (kN - kTail), kTail, cudaMemcpyDeviceToHost),
            cudaSuccess);
  std::vector<std::uint8_t> expected_scales(scales_bytes(spec, kTail));
  kernels::quantize(spec, FloatKind::kBf16, tail.data(), kTail, nullptr, expected_scales.data(),
                    expected.data());
  EXPECT_EQ(got, expected);
  ASSERT_EQ(cudaMemset(device_tail, 0, 2 * kTail), cudaSuccess);
  ASSERT_EQ(cuda::dequantize(spec, scales.data(), codes.data(), kN, FloatKind::kBf16, values.data(),
                             nullptr, stream_),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  std::vector<std::uint16_t> back(kTail), expected_back(kTail);
  ASSERT_EQ(cudaMemcpy(back.data(), device_tail, 2 * kTail, cudaMemcpyDeviceToHost), cudaSuccess);
  kernels::dequantize(spec, expected_scales.data(), expected.data(), kTail, FloatKind::kBf16,
                      expected_back.data());
  EXPECT_EQ(back, expected_back);
}

}  // namespace
}  // namespace swarmline::testing
