// Chunks of an all-reduce: what is sent lies where it lay, what comes is added as it is decoded.

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "compression/codec.h"
#include "tests/compression/wire_values.h"

namespace swarmline {
namespace {

using testing::decode_values;
using testing::encode_values;
using testing::kSizes;
using testing::samples;
using testing::view;
using testing::writable;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class CodecParts : public ::testing::TestWithParam<CodecSpec> {};

// The sum of the own values and what came, in one pass: the bits of two.
template <typename T>
void expect_decode_sum(const CodecSpec& codec, const std::vector<T>& x, std::size_t shift) {
  const Buffer wire = encode_values(codec, x);
  const std::vector<T> own = samples<T>(x.size(), 9);
  std::vector<T> expected = decode_values<T>(wire.bytes(), x.size()), sum(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] = own[i] + expected[i];
  std::vector<std::byte> moved(wire.size() + shift);
  std::ranges::copy(wire.bytes(), moved.begin() + static_cast<std::ptrdiff_t>(shift));
  ASSERT_TRUE(
      decode_sum(BytesView(moved).subspan(shift), testing::kDType<T>, view(own), writable(sum)));
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_TRUE(sum[i] == expected[i] || (std::isnan(sum[i]) && std::isnan(expected[i]))) << i;
}

TEST_P(CodecParts, ASumInOnePassIsDecodingAndAdding) {
  for (const std::size_t n : kSizes) {
    for (const std::size_t shift : {0, 1, 4}) {
      std::vector<float> x = samples<float>(n, 8);
      expect_decode_sum<float>(GetParam(), x, shift);
      expect_decode_sum<double>(GetParam(), samples<double>(n, 3), shift);
      if (n < 2) continue;
      x[n / 2] = kNan;
      expect_decode_sum<float>(GetParam(), x, shift);
    }
  }
}

// Whoever sends the parts one after the other sends the buffer.
TEST_P(CodecParts, ThePartsAreTheBuffer) {
  const auto expect_parts = [&](BytesView values, DType source) {
    const Buffer wire = encode(GetParam(), values, source);
    std::vector<std::byte> joined;
    for (const SharedBytes& part : encode_in_parts(GetParam(), values, source)) {
      EXPECT_EQ(part.is_lent(),
                values.data() <= part.data() && part.data() < values.data() + values.size());
      joined.insert(joined.end(), part.view().begin(), part.view().end());
    }
    ASSERT_TRUE(std::ranges::equal(joined, wire.bytes())) << values.size();
  };
  for (const std::size_t n : kSizes) {
    std::vector<float> x = samples<float>(n, 8);
    const std::vector<double> wide = samples<double>(n, 3);
    expect_parts(view(x), DType::kF32);
    expect_parts(view(wide), DType::kF64);
    std::vector<std::uint16_t> half(n, 0x3C00), bfloat(n, 0x3F80);
    expect_parts(view(half), DType::kF16);
    expect_parts(view(bfloat), DType::kBF16);
    if (n == 0) continue;
    x[n / 2] = kInfinity;
    half[n / 2] = 0xFC00;
    bfloat[n / 2] = 0x7FC0;
    expect_parts(view(x), DType::kF32);
    expect_parts(view(half), DType::kF16);
    expect_parts(view(bfloat), DType::kBF16);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodecParts, ::testing::ValuesIn(testing::all_codecs()),
                         [](const auto& info) { return testing::test_name(info.param); });

}  // namespace
}  // namespace swarmline
