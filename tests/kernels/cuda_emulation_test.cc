// The bodies of the CUDA kernels, run on the host team by team: their index and shuffle logic and
// the element functions in them, without a GPU. Threads of a phase run in two orders, which a body
// that misses a barrier would not survive.
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/norm_body.cuh"
#include "kernels/cuda/quantize_body.cuh"
#include "tests/kernels/cuda_quantize_cases.h"
#include "tests/kernels/emulated_teams.h"

namespace swarmline::testing {
namespace {

namespace cuda = kernels::cuda;
using cuda::CodesAt;
using kernels::FloatKind;
using kernels::QuantFormat;
using kernels::QuantSpec;
using kernels::StochasticKey;

class Emulation : public CudaQuantizer {
 public:
  explicit Emulation(unsigned stride) : stride_(stride) {}

  bool quantize(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                const StochasticKey* key, void* scales, std::uint8_t* codes) override {
    return quantize_to(arrays(scales, codes), spec, source, values, n, key);
  }
  bool quantize_wire(const QuantSpec& spec, FloatKind source, const void* values, std::size_t n,
                     const StochasticKey* key, void* tiles) override {
    return quantize_to(wire(spec, tiles), spec, source, values, n, key);
  }
  bool dequantize(const QuantSpec& spec, const void* scales, const std::uint8_t* codes,
                  std::size_t n, FloatKind target, void* values) override {
    return dequantize_from(arrays(scales, codes), spec, n, target, values);
  }
  bool dequantize_wire(const QuantSpec& spec, const void* tiles, std::size_t n, FloatKind target,
                       void* values) override {
    return dequantize_from(wire(spec, tiles), spec, n, target, values);
  }
  bool feedback(const QuantSpec& spec, const float* values, const float* current, float* next,
                std::size_t n, const StochasticKey* key, void* tiles) override {
    bad_ = 0;
    cuda::QuantizeArgs args{.values = values,
                            .n = n,
                            .spec = spec,
                            .out = wire(spec, tiles),
                            .current = current,
                            .next = next,
                            .non_finite = &bad_};
    if (key != nullptr) args.key = *key;
    with_codec(spec.format, [&]<typename C>(C) {
      if (key == nullptr) return run_chunks<cuda::FeedbackBody<C, false>>(args);
      if constexpr (C::kStochastic) run_chunks<cuda::FeedbackBody<C, true>>(args);
    });
    return bad_ != 0;
  }
  bool normalize(const QuantSpec& spec, const NormCase& norm, FloatKind source, const void* values,
                 std::size_t rows, std::size_t width, void* scales, std::uint8_t* codes) override {
    bad_ = 0;
    const cuda::NormArgs args{.values = values,
                              .rows = rows,
                              .width = width,
                              .spec = spec,
                              .out = arrays(scales, codes),
                              .is_layer = norm.is_layer,
                              .eps = norm.eps,
                              .weight = norm.weight,
                              .bias = norm.bias,
                              .non_finite = &bad_};
    with_codec(spec.format, [&]<typename C>(C) {
      with_type(source, [&]<typename Type>(Type) {
        run_teams<cuda::NormBody<C, Type>>(args, rows, cuda::norm_threads(width), stride_);
      });
    });
    return bad_ != 0;
  }

 private:
  static CodesAt arrays(const void* scales, const std::uint8_t* codes) {
    return {.scales = static_cast<std::uint8_t*>(const_cast<void*>(scales)),
            .codes = const_cast<std::uint8_t*>(codes)};
  }
  static CodesAt wire(const QuantSpec& spec, const void* tiles) {
    return {.scales = static_cast<std::uint8_t*>(const_cast<void*>(tiles)),
            .tile_stride = cuda::tile_bytes(spec, cuda::kTileElements)};
  }
  template <typename Body>
  void run_chunks(const typename Body::Args& args) {
    run_teams<Body>(args, (args.n + cuda::kChunk - 1) / cuda::kChunk, cuda::kTeamThreads, stride_);
  }
  bool quantize_to(const CodesAt& out, const QuantSpec& spec, FloatKind source, const void* values,
                   std::size_t n, const StochasticKey* key) {
    bad_ = 0;
    cuda::QuantizeArgs args{
        .values = values, .n = n, .spec = spec, .out = out, .non_finite = &bad_};
    if (key != nullptr) args.key = *key;
    with_codec(spec.format, [&]<typename C>(C) {
      with_type(source, [&]<typename Type>(Type) {
        if (key == nullptr) return run_chunks<cuda::QuantizeBody<C, Type, false>>(args);
        if constexpr (C::kStochastic) run_chunks<cuda::QuantizeBody<C, Type, true>>(args);
      });
    });
    return bad_ != 0;
  }
  bool dequantize_from(const CodesAt& in, const QuantSpec& spec, std::size_t n, FloatKind target,
                       void* values) {
    bad_ = 0;
    with_codec(spec.format, [&]<typename C>(C) {
      with_type(target, [&]<typename Type>(Type) {
        run_chunks<cuda::DequantizeBody<C, Type>>(
            {.values = values, .n = n, .spec = spec, .in = in, .non_finite = &bad_});
      });
    });
    return bad_ != 0;
  }

  unsigned stride_;
  std::uint32_t bad_ = 0;
};

class CudaEmulation : public ::testing::TestWithParam<unsigned> {
 protected:
  Emulation cuda_{GetParam()};
};
TEST_P(CudaEmulation, Sizes) {
  check_sizes(cuda_, false);
}
TEST_P(CudaEmulation, Stochastic) {
  check_stochastic(cuda_);
}
TEST_P(CudaEmulation, NonFinite) {
  check_non_finite(cuda_);
}
TEST_P(CudaEmulation, ForeignCodes) {
  check_foreign_codes(cuda_);
}
TEST_P(CudaEmulation, Feedback) {
  check_feedback(cuda_);
}
TEST_P(CudaEmulation, Wire) {
  check_wire(cuda_);
}
TEST_P(CudaEmulation, Norms) {
  check_norms(cuda_);
}
INSTANTIATE_TEST_SUITE_P(Orders, CudaEmulation, ::testing::Values(1U, 255U));

std::uint32_t stride = 1021;  // a prime: all low bits occur

template <typename C>
void check_quotients() {
  for (std::uint64_t bits = kernels::kTinyAbsmax; bits < kernels::kFloatInfinity; bits += stride) {
    const float x = kernels::float_of(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(cuda::divided_by_top<C>(x), x / C::kTop) << x;
  }
}
TEST(CudaEmulationFloats, AreDividedByTheTop) {
  check_quotients<cuda::Lin8>();
  check_quotients<cuda::Int4>();
  check_quotients<cuda::Fp8E4M3>();
  check_quotients<cuda::Fp8E5M2>();
}

TEST(CudaEmulationFloats, LikeTheReference) {
  Emulation cuda(1);
  check_floats(cuda, stride);
}

}  // namespace
}  // namespace swarmline::testing

// With the argument "all": every float there is through lin8 and dyn8, and nothing else.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::string_view(argv[1]) == "all") {
    swarmline::testing::stride = 1;
    GTEST_FLAG_SET(filter, "CudaEmulationFloats.*");
  }
  return RUN_ALL_TESTS();
}
