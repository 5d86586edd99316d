#include "tests/kernels/cuda_quantize_cases.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "kernels/cuda/tiles.h"
#include "kernels/kernels.h"
#include "tests/kernels/exhaustive.h"
#include "tests/kernels/samples.h"

namespace swarmline::testing {
namespace {

using kernels::FloatKind;
using kernels::QuantFormat;
using kernels::QuantSpec;
using kernels::ScaleKind;
using kernels::StochasticKey;
using Bytes = std::vector<std::uint8_t>;

constexpr std::array kSources = {FloatKind::kF32, FloatKind::kF16, FloatKind::kBf16};
constexpr std::array<std::size_t, 16> kEdgeSizes = {0,   1,   31,  32,   33,   63,   64,   65,
                                                    511, 512, 513, 4095, 4096, 4097, 8200, 12345};

std::vector<QuantSpec> all_specs() {
  std::vector<QuantSpec> specs;
  for (int format = 0; format < 8; ++format) {
    for (std::uint32_t block = 32; block <= 4096; block *= 2) {
      const ScaleKind scales = (block / 32 + format) % 3 == 0 ? ScaleKind::kBf16 : ScaleKind::kF32;
      const QuantSpec spec{static_cast<QuantFormat>(format), block, scales};
      if (!kernels::is_valid(spec)) continue;
      specs.push_back(spec);
      if (block == 64 || block == 32 || block == 128) {
        specs.push_back(
            {spec.format, block, scales == ScaleKind::kF32 ? ScaleKind::kBf16 : ScaleKind::kF32});
      }
    }
  }
  return specs;
}
std::string describe(const QuantSpec& spec, std::size_t n) {
  return "format " + std::to_string(static_cast<int>(spec.format)) + " block " +
         std::to_string(spec.block) + " scales " + std::to_string(static_cast<int>(spec.scales)) +
         " n " + std::to_string(n);
}
std::size_t width_of(FloatKind kind) {
  return kind == FloatKind::kF32 ? 4 : 2;
}
std::size_t scales_bytes(const QuantSpec& spec, std::size_t n) {
  return quant_blocks(spec, n) * scale_bytes(spec.scales);
}

// Ordinary values, with runs of 64 that are zero, tiny or as large as floats go.
std::vector<float> tensor(std::size_t n, std::uint64_t seed) {
  std::vector<float> x = samples<float>(n, seed);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t run = i / 64 % 23;
    if (run == 5) x[i] = 0;
    if (run == 7) x[i] *= 0x1p-114F;
    if (run == 11) x[i] = std::ldexp(std::fmod(x[i], 2.0F) / 2, 128);
    if (run == 13) x[i] = -std::numeric_limits<float>::max();
  }
  return x;
}
// `x` as an array of `kind`, `offset` bytes into the returned vector.
Bytes as_kind(FloatKind kind, const std::vector<float>& x, std::size_t offset) {
  Bytes out(offset + x.size() * width_of(kind));
  std::vector<std::uint16_t> halves(x.size());
  if (kind == FloatKind::kF16) kernels::fp32_to_fp16(x.data(), halves.data(), x.size());
  if (kind == FloatKind::kBf16) kernels::fp32_to_bf16(x.data(), halves.data(), x.size());
  const void* from = kind == FloatKind::kF32 ? static_cast<const void*>(x.data())
                                             : static_cast<const void*>(halves.data());
  if (!x.empty()) std::memcpy(out.data() + offset, from, out.size() - offset);
  return out;
}
Bytes any_bytes(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  Bytes out(n);
  for (auto& byte : out) byte = static_cast<std::uint8_t>(rng.next_u32());
  return out;
}

struct Coded {
  Bytes scales;
  Bytes codes;
  bool bad = false;
  Coded(const QuantSpec& spec, std::size_t n)
      : scales(scales_bytes(spec, n), 0xEE), codes(code_bytes(spec, n), 0xEE) {}
};
void expect_same(const Coded& expected, const Coded& got) {
  EXPECT_EQ(first_difference(expected.scales, got.scales), expected.scales.size()) << "scales";
  EXPECT_EQ(first_difference(expected.codes, got.codes), expected.codes.size()) << "codes";
  EXPECT_EQ(expected.bad, got.bad);
}

// Quantizes on both and compares; values begin `offset` bytes into an aligned buffer, codes at
// `offset` / 2.
Coded check_quantize(CudaQuantizer& cuda, const QuantSpec& spec, FloatKind source,
                     const std::vector<float>& x, const StochasticKey* key, std::size_t offset) {
  SCOPED_TRACE(describe(spec, x.size()) + " source " + std::to_string(static_cast<int>(source)) +
               " offset " + std::to_string(offset));
  const Bytes values = as_kind(source, x, offset);
  Coded expected(spec, x.size()), got(spec, x.size());
  expected.bad = kernels::quantize(spec, source, values.data() + offset, x.size(), key,
                                   expected.scales.data(), expected.codes.data());
  got.codes.insert(got.codes.begin(), offset / 2, 0);
  got.bad = cuda.quantize(spec, source, values.data() + offset, x.size(), key, got.scales.data(),
                          got.codes.data() + offset / 2);
  got.codes.erase(got.codes.begin(), got.codes.begin() + static_cast<std::ptrdiff_t>(offset / 2));
  expect_same(expected, got);
  return expected;
}
void check_dequantize(CudaQuantizer& cuda, const QuantSpec& spec, const Coded& coded, std::size_t n,
                      FloatKind target, std::size_t offset) {
  SCOPED_TRACE(describe(spec, n) + " target " + std::to_string(static_cast<int>(target)) +
               " offset " + std::to_string(offset));
  Bytes expected(n * width_of(target)), got(offset + n * width_of(target));
  Bytes codes(offset / 2);
  codes.insert(codes.end(), coded.codes.begin(), coded.codes.end());
  const bool bad = kernels::dequantize(spec, coded.scales.data(), coded.codes.data(), n, target,
                                       expected.data());
  EXPECT_EQ(cuda.dequantize(spec, coded.scales.data(), codes.data() + offset / 2, n, target,
                            got.data() + offset),
            bad);
  got.erase(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(offset));
  EXPECT_EQ(first_difference(expected, got), expected.size());
}

// Equal, or both NaN.
void expect_same_values(const std::vector<float>& expected, const std::vector<float>& got) {
  ASSERT_EQ(expected.size(), got.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const bool same =
        std::bit_cast<std::uint32_t>(expected[i]) == std::bit_cast<std::uint32_t>(got[i]);
    if (same || (std::isnan(expected[i]) && std::isnan(got[i]))) continue;
    FAIL() << "element " << i << ": " << expected[i] << " and " << got[i];
  }
}

const StochasticKey kKey{.seed = 0x123456789ABCDEF, .stream = {7, 8, 9}, .first_element = 65536};

}  // namespace

void check_sizes(CudaQuantizer& cuda, bool large) {
  for (const QuantSpec& spec : all_specs()) {
    for (FloatKind source : kSources) {
      for (std::size_t n : kEdgeSizes) {
        for (std::size_t offset : {std::size_t{0}, width_of(source)}) {
          const Coded coded = check_quantize(cuda, spec, source, tensor(n, n + 1), nullptr, offset);
          check_dequantize(cuda, spec, coded, n, source, offset);
        }
      }
      if (!large) continue;
      const Coded coded = check_quantize(cuda, spec, source, tensor(1'000'003, 5), nullptr, 0);
      check_dequantize(cuda, spec, coded, 1'000'003, source, 0);
    }
  }
}

void check_stochastic(CudaQuantizer& cuda) {
  for (const QuantSpec& spec : all_specs()) {
    if (!kernels::can_round_stochastically(spec.format)) continue;
    for (FloatKind source : kSources) {
      for (std::size_t n : {33, 4096, 20001}) {
        check_quantize(cuda, spec, source, tensor(n, n + 2), &kKey, 0);
      }
    }
  }
}

void check_non_finite(CudaQuantizer& cuda) {
  for (const QuantSpec& spec : all_specs()) {
    for (FloatKind source : kSources) {
      for (const float odd : {std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(), std::nanf("")}) {
        std::vector<float> x = tensor(9000, 3);
        for (std::size_t i = 77; i < x.size(); i += 2099) x[i] = odd;
        const Coded coded = check_quantize(cuda, spec, source, x, nullptr, 0);
        EXPECT_TRUE(coded.bad);
        check_dequantize(cuda, spec, coded, x.size(), source, 0);
      }
    }
  }
}

void check_foreign_codes(CudaQuantizer& cuda) {
  constexpr std::size_t kN = 8200;
  for (const QuantSpec& spec : all_specs()) {
    Coded coded(spec, kN);
    coded.codes = any_bytes(coded.codes.size(), 11);
    coded.scales = any_bytes(coded.scales.size(), 12);
    for (FloatKind target : kSources) check_dequantize(cuda, spec, coded, kN, target, 0);
    // Scales of a usual size, so that most values are numbers.
    Coded usual(spec, kN);
    usual.codes = coded.codes;
    for (std::size_t i = 0; i < usual.scales.size(); ++i) {
      const std::size_t byte = i % scale_bytes(spec.scales);
      const std::size_t top = scale_bytes(spec.scales) - 1;
      usual.scales[i] = byte == top ? 0x3A + i % 3 : coded.scales[i];
    }
    for (FloatKind target : kSources) check_dequantize(cuda, spec, usual, kN, target, 0);
  }
}

namespace {

using kernels::cuda::kTileElements;

std::size_t tiles_bytes(const QuantSpec& spec, std::size_t n) {
  std::size_t bytes = 0;
  for (std::size_t begin = 0; begin < n; begin += kTileElements) {
    bytes += kernels::cuda::tile_bytes(spec, std::min<std::size_t>(kTileElements, n - begin));
  }
  return bytes;
}
// f(tile, offset of its scales in the buffer, its first element, its elements).
template <typename F>
void for_each_tile(const QuantSpec& spec, std::size_t n, F f) {
  std::size_t offset = 0;
  for (std::size_t begin = 0; begin < n; begin += kTileElements) {
    const std::size_t count = std::min<std::size_t>(kTileElements, n - begin);
    f(offset, begin, count);
    offset += kernels::cuda::tile_bytes(spec, count);
  }
}

void check_wire_of(CudaQuantizer& cuda, const QuantSpec& spec, FloatKind source, std::size_t n,
                   bool is_stochastic) {
  SCOPED_TRACE(describe(spec, n) + " source " + std::to_string(static_cast<int>(source)));
  const Bytes values = as_kind(source, tensor(n, 50), 0);
  // Gaps are not the kernel's: they keep what was there.
  Bytes expected(tiles_bytes(spec, n), 0x5A), got(expected);
  const StochasticKey* key = is_stochastic ? &kKey : nullptr;
  bool bad = false;
  for_each_tile(spec, n, [&](std::size_t at, std::size_t begin, std::size_t count) {
    StochasticKey here = kKey;
    here.first_element += begin;
    std::uint8_t* const tile = expected.data() + at;
    bad |= kernels::quantize(spec, source, values.data() + begin * width_of(source), count,
                             is_stochastic ? &here : nullptr, tile,
                             tile + kernels::cuda::tile_scales_bytes(spec, count));
  });
  EXPECT_EQ(cuda.quantize_wire(spec, source, values.data(), n, key, got.data()), bad);
  EXPECT_EQ(first_difference(expected, got), expected.size());

  Bytes decoded(values.size()), expected_values(values.size());
  bool decoded_bad = false;
  for_each_tile(spec, n, [&](std::size_t at, std::size_t begin, std::size_t count) {
    const std::uint8_t* const tile = expected.data() + at;
    decoded_bad |=
        kernels::dequantize(spec, tile, tile + kernels::cuda::tile_scales_bytes(spec, count), count,
                            source, expected_values.data() + begin * width_of(source));
  });
  EXPECT_EQ(cuda.dequantize_wire(spec, expected.data(), n, source, decoded.data()), decoded_bad);
  EXPECT_EQ(first_difference(expected_values, decoded), decoded.size());
}

}  // namespace

void check_wire(CudaQuantizer& cuda) {
  for (const QuantSpec& spec : all_specs()) {
    check_wire_of(cuda, spec, FloatKind::kF32, 2 * kTileElements + 12345, false);
    check_wire_of(cuda, spec, FloatKind::kBf16, kTileElements + 1, false);
    check_wire_of(cuda, spec, FloatKind::kF16, kTileElements, false);
    check_wire_of(cuda, spec, FloatKind::kF32, 0, false);
    check_wire_of(cuda, spec, FloatKind::kBf16, 100, false);
    if (!kernels::can_round_stochastically(spec.format)) continue;
    check_wire_of(cuda, spec, FloatKind::kBf16, kTileElements + 4097, true);
  }
}

namespace {

void check_feedback_of(CudaQuantizer& cuda, const QuantSpec& spec, std::size_t n,
                       const StochasticKey* key, bool in_place, bool with_nan) {
  SCOPED_TRACE(describe(spec, n) + (in_place ? ", in place" : ""));
  std::vector<float> x = tensor(n, 40);
  if (with_nan && n > 0) x[n / 2] = std::nanf("");
  std::vector<float> current = samples<float>(n, 41);
  std::vector<float> expected_next = current, next(n, 7.0F);
  Bytes expected(tiles_bytes(spec, n), 0x5A), got(expected);
  bool bad = false;
  for_each_tile(spec, n, [&](std::size_t at, std::size_t begin, std::size_t count) {
    StochasticKey here = key != nullptr ? *key : StochasticKey{};
    here.first_element += begin;
    std::uint8_t* const tile = expected.data() + at;
    bad |= kernels::quantize_with_feedback(spec, x.data() + begin, expected_next.data() + begin,
                                           count, key != nullptr ? &here : nullptr, tile,
                                           tile + kernels::cuda::tile_scales_bytes(spec, count));
  });
  std::vector<float>& out = in_place ? current : next;
  EXPECT_EQ(cuda.feedback(spec, x.data(), current.data(), out.data(), n, key, got.data()), bad);
  EXPECT_EQ(first_difference(expected, got), expected.size());
  expect_same_values(expected_next, out);
}

}  // namespace

void check_feedback(CudaQuantizer& cuda) {
  for (const QuantSpec& spec : all_specs()) {
    for (const std::size_t n : {0UL, 1UL, 65UL, 4097UL, 9999UL, kTileElements + 4097UL}) {
      check_feedback_of(cuda, spec, n, nullptr, n % 3 == 0, false);
      check_feedback_of(cuda, spec, n, nullptr, n % 3 != 0, true);
      if (kernels::can_round_stochastically(spec.format))
        check_feedback_of(cuda, spec, n, &kKey, n % 2 == 0, false);
    }
  }
}

namespace {

// The sums of kernels/cuda/quantize.cuh, one thread of the team after the other.
class NormReference {
 public:
  NormReference(std::size_t width, FloatKind source)
      : width_(width),
        warps_(std::min<std::size_t>(8, (width + 511) / 512)),
        v_(source == FloatKind::kF32 ? 4 : 8) {}

  std::vector<float> normalise(const NormCase& norm, const float* x) const {
    const auto width = static_cast<float>(width_);
    const float mean = norm.is_layer ? sum([&](std::size_t i) { return x[i]; }) / width : 0.0F;
    const float squares = sum([&](std::size_t i) {
      const float centred = x[i] - mean;
      return centred * centred;
    });
    const float inverse = 1.0F / std::sqrt(squares / width + norm.eps);
    std::vector<float> y(width_);
    for (std::size_t i = 0; i < width_; ++i) {
      y[i] = (x[i] - mean) * inverse * norm.weight[i];
      if (norm.is_layer) y[i] = y[i] + norm.bias[i];
    }
    return y;
  }

 private:
  template <typename Term>
  float sum(Term term) const {
    float total = 0;
    for (std::size_t w = 0; w < warps_; ++w) {
      std::array<float, 32> lanes{};
      for (std::size_t lane = 0; lane < 32; ++lane) lanes[lane] = of_thread(w, lane, term);
      for (std::size_t mask = 1; mask < 32; mask *= 2) {
        const std::array<float, 32> before = lanes;
        for (std::size_t lane = 0; lane < 32; ++lane) lanes[lane] += before[lane ^ mask];
      }
      total = w == 0 ? lanes[0] : total + lanes[0];
    }
    return total;
  }
  template <typename Term>
  float of_thread(std::size_t w, std::size_t lane, Term term) const {
    float total = 0;
    for (std::size_t run = 0; run < width_; run += warps_ * 512) {
      for (std::size_t group = 0; group < 16 / v_; ++group) {
        for (std::size_t i = 0; i < v_; ++i) {
          const std::size_t at = run + 512 * w + 32 * v_ * group + v_ * lane + i;
          if (at < width_) total += term(at);
        }
      }
    }
    return total;
  }

  std::size_t width_;
  std::size_t warps_;
  std::size_t v_;
};

void check_norm(CudaQuantizer& cuda, const QuantSpec& spec, FloatKind source, std::size_t rows,
                std::size_t width, bool is_layer) {
  SCOPED_TRACE(describe(spec, rows * width) + " width " + std::to_string(width) + " source " +
               std::to_string(static_cast<int>(source)));
  const std::vector<float> weight = samples<float>(width, 60);
  const std::vector<float> bias = samples<float>(width, 61);
  const NormCase norm{
      .is_layer = is_layer, .weight = weight.data(), .bias = is_layer ? bias.data() : nullptr};
  const Bytes values = as_kind(source, samples<float>(rows * width, 62), 0);
  std::vector<float> x(rows * width);
  const auto* halves = reinterpret_cast<const std::uint16_t*>(values.data());
  if (source == FloatKind::kF32) std::memcpy(x.data(), values.data(), values.size());
  if (source == FloatKind::kF16) kernels::fp16_to_fp32(halves, x.data(), x.size());
  if (source == FloatKind::kBf16) kernels::bf16_to_fp32(halves, x.data(), x.size());

  std::vector<float> y;
  const NormReference reference(width, source);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::vector<float> one = reference.normalise(norm, x.data() + row * width);
    y.insert(y.end(), one.begin(), one.end());
  }
  Coded expected(spec, y.size()), got(spec, y.size());
  expected.bad = kernels::quantize(spec, FloatKind::kF32, y.data(), y.size(), nullptr,
                                   expected.scales.data(), expected.codes.data());
  got.bad = cuda.normalize(spec, norm, source, values.data(), rows, width, got.scales.data(),
                           got.codes.data());
  expect_same(expected, got);
}

}  // namespace

void check_norms(CudaQuantizer& cuda) {
  const std::array<QuantSpec, 6> specs = {{{QuantFormat::kLin8, 64, ScaleKind::kF32},
                                           {QuantFormat::kLin8, 256, ScaleKind::kBf16},
                                           {QuantFormat::kH8, 64, ScaleKind::kF32},
                                           {QuantFormat::kDyn8, 256, ScaleKind::kF32},
                                           {QuantFormat::kDyn8, 4096, ScaleKind::kF32},
                                           {QuantFormat::kE4M3, 128, ScaleKind::kF32}}};
  for (const QuantSpec& spec : specs) {
    for (FloatKind source : kSources) {
      for (std::size_t width : {256, 768, 2048, 4096, 5120, 12288}) {
        if (width % spec.block != 0) continue;
        for (bool is_layer : {false, true}) check_norm(cuda, spec, source, 3, width, is_layer);
      }
    }
  }
}

void check_floats(CudaQuantizer& cuda, std::uint32_t stride) {
  const ExhaustiveSubject subject{
      "CUDA", [&cuda](const QuantSpec& spec, const float* values, std::size_t n, float* scales,
                      std::uint8_t* codes) {
        return cuda.quantize(spec, FloatKind::kF32, values, n, nullptr, scales, codes);
      }};
  for (QuantFormat format : {QuantFormat::kLin8, QuantFormat::kDyn8, QuantFormat::kDyn8Unsigned}) {
    for (const float absmax : kExhaustiveAbsmax) {
      SCOPED_TRACE(absmax);
      Exhaustive test({format, 256, ScaleKind::kF32}, {subject}, stride);
      test.run(absmax);
      EXPECT_GE(test.checked(), 2 * (std::uint64_t{std::bit_cast<std::uint32_t>(absmax)} / stride));
    }
    Exhaustive test({format, 64, ScaleKind::kF32}, {subject}, stride);
    test.run_not_finite();
    EXPECT_GE(test.checked(), 2 * 64 * (0x800000ULL / stride));
  }
}

}  // namespace swarmline::testing
