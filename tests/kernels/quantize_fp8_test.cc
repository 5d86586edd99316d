// fp8, code by code and float by float. With the argument `all` (label slow): every float up to the
// largest number, at scale 1; otherwise a sample.
#include <cstring>

#include <gtest/gtest.h>

#include "tests/kernels/block_harness.h"

namespace swarmline::testing {

bool all_patterns = false;

namespace {

struct Numbers {
  QuantFormat format;
  float largest;
  // Some codes and what they stand for, from the tables of the OCP 8-bit floating point
  // specification (revision 1.0) and of IEEE halves cut short.
  std::vector<std::pair<int, float>> known;
};
const std::array<Numbers, 2> kFormats = {Numbers{QuantFormat::kE4M3,
                                                 448,
                                                 {{0x00, 0.0F},
                                                  {0x01, 0x1p-9F},
                                                  {0x07, 0x1.Cp-7F},
                                                  {0x08, 0x1p-6F},
                                                  {0x38, 1.0F},
                                                  {0x39, 1.125F},
                                                  {0x7E, 448.0F},
                                                  {0x81, -0x1p-9F},
                                                  {0xFE, -448.0F}}},
                                         Numbers{QuantFormat::kE5M2,
                                                 57344,
                                                 {{0x00, 0.0F},
                                                  {0x01, 0x1p-16F},
                                                  {0x03, 0x1.8p-15F},
                                                  {0x04, 0x1p-14F},
                                                  {0x3C, 1.0F},
                                                  {0x3D, 1.25F},
                                                  {0x7B, 57344.0F},
                                                  {0x81, -0x1p-16F},
                                                  {0xFB, -57344.0F}}}};

// The number of every code, by decoding 256 blocks of one code each at scale 1.
std::vector<float> decoded_codes(QuantFormat format) {
  const QuantSpec spec = {format, 128};
  std::vector<float> numbers;
  for (int code = 0; code < 256; ++code) {
    const std::vector<std::uint8_t> codes(128, static_cast<std::uint8_t>(code));
    std::vector<float> values(128);
    const float one = 1;
    const bool bad =
        dequantize(spec, &one, codes.data(), codes.size(), FloatKind::kF32, values.data());
    EXPECT_EQ(bad, !std::isfinite(values[0]));
    for (float value : values) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(values[0]));
    }
    numbers.push_back(values[0]);
  }
  return numbers;
}

TEST(Fp8, EveryCodeReadsAsTheTableSays) {
  for (const Numbers& format : kFormats) {
    for_each_quant_path([&](const std::string& path) {
      SCOPED_TRACE(path);
      const std::vector<float> got = decoded_codes(format.format);
      const ReferenceBlocks reference({format.format, 128});
      const std::vector<double>& table = reference.fp8_numbers();
      for (std::size_t code = 0; code < 128; ++code) {
        if (code >= table.size()) {
          EXPECT_EQ(std::bit_cast<std::uint32_t>(got[code]), 0x7FC00000U) << code;
          EXPECT_EQ(std::bit_cast<std::uint32_t>(got[code + 128]), 0x7FC00000U) << code;
        } else {
          EXPECT_EQ(got[code], static_cast<float>(table[code])) << code;
          EXPECT_EQ(got[code + 128], -static_cast<float>(table[code])) << code;
          EXPECT_TRUE(std::signbit(got[code + 128])) << code;
        }
      }
      for (const auto& [code, value] : format.known) {
        EXPECT_EQ(got.at(static_cast<std::size_t>(code)), value) << code;
      }
    });
  }
}

// Blocks that begin with the largest number have the scale 1 exactly. Magnitudes ascend, and so do
// codes: that no code comes too early or too late is seen at the few places where it changes.
class Sweep {
 public:
  Sweep(const Numbers& format, std::uint32_t stride)
      : spec_{format.format, 128}, reference_(spec_), largest_(format.largest), stride_(stride) {}

  void run() {
    const auto end = std::bit_cast<std::uint32_t>(largest_);
    for (std::uint64_t bits = 0; bits <= end && !::testing::Test::HasFailure(); bits += stride_) {
      for (std::uint32_t sign : {0U, 0x80000000U}) {
        if (values_.size() % 128 == 0) values_.push_back(largest_);
        values_.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits) | sign));
      }
      if (values_.size() >= kChunk) check();
    }
    check();
    EXPECT_EQ(code_, static_cast<int>(reference_.fp8_numbers().size()) - 1);
  }

 private:
  static constexpr std::size_t kChunk = 1 << 18;

  void check() {
    std::vector<std::uint8_t> codes(values_.size());
    std::vector<float> scales(quant_blocks(spec_, values_.size()));
    std::vector<std::uint8_t> expected(values_.size());
    for (std::size_t i = 0; i < values_.size(); ++i) expected[i] = expected_code(i);
    for_each_quant_path([&](const std::string& path) {
      quantize(spec_, FloatKind::kF32, values_.data(), values_.size(), nullptr, scales.data(),
               codes.data());
      const std::size_t i = first_difference(expected, codes);
      ASSERT_EQ(i, codes.size()) << path << " " << values_[i] << " gives " << int{codes[i]}
                                 << ", not " << int{expected[i]};
    });
    values_.clear();
  }

  std::uint8_t expected_code(std::size_t i) {
    const float value = values_[i];
    if (i % 128 == 0) {
      return static_cast<std::uint8_t>(reference_.fp8_numbers().size() - 1);
    }
    // The next code's turn comes halfway, and at halfway itself if it is even.
    const double a = std::abs(double{value});
    const std::vector<double>& numbers = reference_.fp8_numbers();
    while (static_cast<std::size_t>(code_) + 1 < numbers.size()) {
      const auto next = static_cast<std::size_t>(code_) + 1;
      const double halfway = (numbers[next - 1] + numbers[next]) / 2;
      if (a < halfway || (a == halfway && next % 2 == 1)) break;
      ++code_;
    }
    return static_cast<std::uint8_t>(code_ + (std::signbit(value) ? 128 : 0));
  }

  QuantSpec spec_;
  ReferenceBlocks reference_;
  float largest_;
  std::uint32_t stride_;
  std::vector<float> values_;
  int code_ = 0;
};

TEST(Fp8, EveryFloatGetsTheNearestCode) {
  constexpr std::uint32_t kSampleStride = 1013;  // a prime: meets every low bit
  for (const Numbers& format : kFormats) {
    Sweep(format, all_patterns ? 1 : kSampleStride).run();
  }
}

// All floats near every place where the code changes.
TEST(Fp8, FloatsBesideEveryTie) {
  for (const Numbers& format : kFormats) {
    const QuantSpec spec = {format.format, 128};
    const ReferenceBlocks reference(spec);
    const std::vector<double>& numbers = reference.fp8_numbers();
    std::vector<float> x;
    for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
      const auto tie =
          std::bit_cast<std::uint32_t>(static_cast<float>((numbers[i] + numbers[i + 1]) / 2));
      for (std::uint32_t bits = tie - 8; bits <= tie + 8; ++bits) {
        if (x.size() % 128 == 0) x.push_back(format.largest);
        x.push_back(std::bit_cast<float>(bits));
        if (x.size() % 128 == 0) x.push_back(format.largest);
        x.push_back(-std::bit_cast<float>(bits));
      }
    }
    expect_quantizes(spec, FloatKind::kF32, x, nullptr, 0);
  }
}

}  // namespace
}  // namespace swarmline::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  swarmline::testing::all_patterns = argc > 1 && std::strcmp(argv[1], "all") == 0;
  return RUN_ALL_TESTS();
}
