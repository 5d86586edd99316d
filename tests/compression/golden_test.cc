// Wire buffers of version 2 stay readable and are written byte for byte as before:
// tests/golden/wire. A changed file means a new version.

#include "tests/golden/golden.h"

#include <limits>

#include <gtest/gtest.h>

#include "compression/codec.h"

namespace swarmline {
namespace {

struct Golden {
  const char* name;
  CodecSpec codec;
  DType source;
  std::size_t elements;
  bool non_finite;
  bool stochastic = false;
};

const CodecSpec kBf16Scales{
    .kind = CodecKind::kH8, .block = 64, .scales = kernels::ScaleKind::kBf16};

const Golden kGolden[] = {
    {"none_f32", {.kind = CodecKind::kNone}, DType::kF32, 9, false},
    {"none_f64", {.kind = CodecKind::kNone}, DType::kF64, 9, false},
    {"fp16_f32", {.kind = CodecKind::kFp16}, DType::kF32, 9, false},
    {"fp16_f64_nonfinite", {.kind = CodecKind::kFp16}, DType::kF64, 9, true},
    {"bf16_f32", {.kind = CodecKind::kBf16}, DType::kF32, 9, false},
    {"lin8_f32", {.kind = CodecKind::kLin8, .block = 64}, DType::kF32, 130, false},
    {"lin8_f32_nonfinite", {.kind = CodecKind::kLin8, .block = 64}, DType::kF32, 130, true},
    {"lin8_empty", {.kind = CodecKind::kLin8, .block = 256}, DType::kF32, 0, false},
    {"lin8_f32_stochastic", {.kind = CodecKind::kLin8, .block = 64}, DType::kF32, 130, false, true},
    {"dyn8_f32", {.kind = CodecKind::kDyn8, .block = 256}, DType::kF32, 300, false},
    {"h8_f32", {.kind = CodecKind::kH8, .block = 64}, DType::kF32, 130, false},
    {"h8_bf16_scales_f64", kBf16Scales, DType::kF64, 130, false},
    {"h8_f32_no_checksums",
     {.kind = CodecKind::kH8, .block = 64, .checksums = false},
     DType::kF32,
     130,
     false},
    {"fp8_f32", {.kind = CodecKind::kE4M3, .block = 128}, DType::kF32, 130, false},
    {"e5m2_f32", {.kind = CodecKind::kE5M2, .block = 128}, DType::kF32, 130, false},
    {"int4_f32", {.kind = CodecKind::kInt4, .block = 32}, DType::kF32, 131, false},
    {"h4_f32", {.kind = CodecKind::kH4, .block = 32}, DType::kF32, 131, false},
    {"topk_f32", {.kind = CodecKind::kTopK, .kept = 6554}, DType::kF32, 130, false},
};

template <typename T>
Buffer golden_values(const Golden& golden) {
  Buffer values(golden.elements * sizeof(T));
  const auto x = values.as<T>();
  // Sixteenths and a third, so that rounding shows; exact in every C++ implementation.
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = (static_cast<T>(i) - 4) * T(0.0625) + T(1) / T(3);
  }
  if (golden.non_finite) x[7] = std::numeric_limits<T>::infinity();
  return values;
}

class GoldenWire : public ::testing::TestWithParam<Golden> {
 protected:
  Buffer encoded() const {
    const Buffer values = GetParam().source == DType::kF32 ? golden_values<float>(GetParam())
                                                           : golden_values<double>(GetParam());
    const kernels::StochasticKey key{.seed = 7, .stream = {1, 2, 3}};
    return encode(GetParam().codec, values.bytes(), GetParam().source,
                  GetParam().stochastic ? &key : nullptr);
  }
};

TEST_P(GoldenWire, BytesAreThoseOfTheFile) {
  const std::string file = std::string("wire/") + GetParam().name + ".bin";
  expect_golden(file, as_text(encoded().bytes()));
  const std::string bytes = read_golden(file);

  const auto header = read_wire_header(as_bytes(bytes));
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->codec, GetParam().codec);
  EXPECT_EQ(header->elements, GetParam().elements);
  EXPECT_EQ(header->non_finite, GetParam().non_finite || GetParam().codec.kind == CodecKind::kNone);
  Buffer out(GetParam().elements * size_bytes(GetParam().source));
  EXPECT_TRUE(decode(as_bytes(bytes), GetParam().source, out.bytes()).has_value());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenWire, ::testing::ValuesIn(kGolden),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace swarmline
