// Chunks of an all-reduce: what is sent lies where it lay, what comes is added as it is decoded.

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
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

template <typename T>
void expect_same(const std::vector<T>& got, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) << i;
}

template <typename T>
SharedBytes moved_by(const CodecSpec& codec, const std::vector<T>& x, std::size_t shift) {
  const Buffer wire = encode_values(codec, x);
  Buffer moved(wire.size() + shift);
  copy_bytes(wire.bytes(), moved.bytes().subspan(shift));
  return SharedBytes(std::move(moved)).slice(shift, wire.size());
}

// Past the caches, wherever both lie: the bits of decode().
template <typename T>
void expect_stream_decode(const CodecSpec& codec, const std::vector<T>& x, std::size_t shift) {
  const SharedBytes wire = moved_by(codec, x, shift);
  std::vector<T> out(x.size() + 1, T(7));
  const std::size_t bytes = x.size() * sizeof(T);
  ASSERT_TRUE(stream_decode(wire.view(), testing::kDType<T>, writable(out).subspan(sizeof(T))));
  EXPECT_EQ(out.front(), T(7));
  out.erase(out.begin());
  expect_same(out, decode_values<T>(wire.view(), x.size()));
  EXPECT_EQ(bytes, out.size() * sizeof(T));
}

// Where they lie, in pieces of any size that stay within a tile: the values.
template <typename T>
void expect_values(const std::vector<T>& x, std::size_t shift, std::size_t piece) {
  const SharedBytes wire = moved_by(CodecSpec{}, x, shift);
  const auto plain = PlainValues::of(wire, testing::kDType<T>, x.size() * sizeof(T));
  ASSERT_TRUE(plain);
  std::vector<T> out(x.size());
  for (std::size_t first = 0; first < x.size();) {
    const std::size_t left_of_tile = kWireTileElements - first % kWireTileElements;
    const std::size_t n = std::min({piece, left_of_tile, x.size() - first});
    std::ranges::copy(plain->values(first, n), writable(out).subspan(first * sizeof(T)).begin());
    first += n;
  }
  expect_same(out, x);
}

TEST_P(CodecParts, ABufferIsDecodedPastTheCaches) {
  for (const std::size_t n : kSizes) {
    for (const std::size_t shift : {0, 1, 4}) {
      std::vector<float> x = samples<float>(n, 8);
      expect_stream_decode<float>(GetParam(), x, shift);
      expect_stream_decode<double>(GetParam(), samples<double>(n, 3), shift);
      if (n < 2) continue;
      x[n / 2] = kNan;
      expect_stream_decode<float>(GetParam(), x, shift);
    }
  }
}

TEST(PlainValuesTest, LieInTheBuffer) {
  for (const std::size_t n : kSizes) {
    for (const std::size_t shift : {0, 1, 4}) {
      std::vector<float> x = samples<float>(n, 8);
      expect_values(samples<double>(n, 3), shift, 1000);
      if (n >= 2) x[n / 2] = kNan;
      expect_values(x, shift, 4096);
      expect_values(x, shift, kWireTileElements);
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
    ASSERT_TRUE(same_bytes(joined, wire.bytes())) << values.size();
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
