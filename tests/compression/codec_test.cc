// What every codec promises: exact sizes, the documented bytes, and values back within its
// precision.

#include "compression/codec.h"

#include <cfloat>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compression/wire.h"
#include "engine/base/hash.h"
#include "tests/kernels/samples.h"

namespace swarmline {
namespace {

using testing::kSizes;
using testing::samples;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
constexpr DType kDType = std::is_same_v<T, float> ? DType::kF32 : DType::kF64;

std::vector<CodecSpec> all_codecs() {
  return {{.kind = CodecKind::kNone},
          {.kind = CodecKind::kFp16},
          {.kind = CodecKind::kBf16},
          {.kind = CodecKind::kInt8, .block = 64},
          {.kind = CodecKind::kInt8, .block = 256},
          {.kind = CodecKind::kInt8, .block = 4096}};
}

template <typename T>
BytesView view(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
MutableBytes writable(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
Buffer encode_values(const CodecSpec& codec, const std::vector<T>& values) {
  return encode(codec, view(values), kDType<T>);
}
template <typename T>
std::vector<T> decode_values(BytesView wire, std::size_t n) {
  std::vector<T> values(n);
  const auto decoded = decode(wire, kDType<T>, writable(values));
  EXPECT_TRUE(decoded.has_value()) << (decoded ? "" : decoded.error().what);
  return values;
}

// What a codec makes of the values, from its definition.
std::vector<float> through_codec(const CodecSpec& codec, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    switch (codec.kind) {
      case CodecKind::kNone:
        y[i] = x[i];
        break;
      case CodecKind::kFp16:
        y[i] = static_cast<float>(static_cast<_Float16>(x[i]));
        break;
      case CodecKind::kBf16: {
        const auto bits = std::bit_cast<std::uint32_t>(x[i]);
        const std::uint32_t rounded = bits + 0x7FFFU + (bits >> 16) % 2;
        y[i] = std::bit_cast<float>(rounded & 0xFFFF0000U);
        break;
      }
      case CodecKind::kInt8: {
        const std::size_t begin = i / codec.block * codec.block;
        // A block never crosses a tile: blocks divide tiles.
        float absmax = 0;
        for (std::size_t j = begin; j < std::min(begin + codec.block, x.size()); ++j) {
          absmax = std::max(absmax, std::abs(x[j]));
        }
        const float scale = absmax / 127.0F;
        y[i] = scale < FLT_MIN ? 0.0F : std::nearbyint(x[i] / scale) * scale;
        break;
      }
    }
  }
  return y;
}

class EveryCodec : public ::testing::TestWithParam<CodecSpec> {};

TEST_P(EveryCodec, RoundTripAtEverySizeOfFp32) {
  for (const std::size_t n : kSizes) {
    if (n > 70'000 && GetParam().block == 4096) continue;  // the reference is quadratic in block
    const std::vector<float> x = samples<float>(n, n);
    const Buffer wire = encode_values(GetParam(), x);
    ASSERT_EQ(wire.size(), encoded_bytes(GetParam(), n, DType::kF32));
    const auto header = read_wire_header(wire.bytes());
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->codec, GetParam());
    EXPECT_EQ(header->source, DType::kF32);
    EXPECT_EQ(header->elements, n);
    EXPECT_EQ(header->payload_bytes, wire.size() - kWireHeaderBytes);
    EXPECT_FALSE(header->non_finite);
    EXPECT_EQ(decode_values<float>(wire.bytes(), n), through_codec(GetParam(), x)) << n;
  }
}

TEST_P(EveryCodec, Fp64GoesThroughFp32UnlessTheCodecIsNone) {
  for (const std::size_t n : {0UL, 1UL, 255UL, 4097UL, 65537UL, 131073UL}) {
    const std::vector<double> x = samples<double>(n, n + 1);
    const Buffer wire = encode_values(GetParam(), x);
    ASSERT_EQ(wire.size(), encoded_bytes(GetParam(), n, DType::kF64));
    const std::vector<double> y = decode_values<double>(wire.bytes(), n);
    if (GetParam().kind == CodecKind::kNone) {
      EXPECT_EQ(y, x);
      continue;
    }
    const std::vector<float> narrow(x.begin(), x.end());
    const std::vector<float> expected = through_codec(GetParam(), narrow);
    EXPECT_EQ(y, std::vector<double>(expected.begin(), expected.end()));
    EXPECT_EQ(decode_values<float>(wire.bytes(), n), expected) << "a narrower target";
    EXPECT_EQ(encode_values(GetParam(), narrow).size(), wire.size());
  }
}

TEST_P(EveryCodec, SameBytesTwiceAndAtAnyAlignment) {
  const std::size_t n = 70'001;
  const std::vector<float> x = samples<float>(n, 77);
  const Buffer wire = encode_values(GetParam(), x);
  for (const std::size_t shift : {1, 3, 4, 63}) {
    std::vector<std::byte> moved(n * sizeof(float) + shift);
    std::ranges::copy(view(x), moved.begin() + static_cast<std::ptrdiff_t>(shift));
    const Buffer again = encode(GetParam(), BytesView(moved).subspan(shift), DType::kF32);
    ASSERT_TRUE(std::ranges::equal(wire.bytes(), again.bytes()));

    std::vector<std::byte> moved_wire(wire.size() + shift), out(n * sizeof(float) + shift);
    std::ranges::copy(wire.bytes(), moved_wire.begin() + static_cast<std::ptrdiff_t>(shift));
    const auto decoded =
        decode(BytesView(moved_wire).subspan(shift), DType::kF32, MutableBytes(out).subspan(shift));
    ASSERT_TRUE(decoded.has_value());
    const std::vector<float> straight = decode_values<float>(wire.bytes(), n);
    ASSERT_TRUE(std::ranges::equal(view(straight), BytesView(out).subspan(shift)));
  }
}

TEST_P(EveryCodec, NonFiniteTravelsWithItsFlag) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> x = samples<float>(70'000, 5);
    x[65'540] = bad;
    const Buffer wire = encode_values(GetParam(), x);
    EXPECT_TRUE(read_wire_header(wire.bytes())->non_finite);
    const std::vector<float> y = decode_values<float>(wire.bytes(), x.size());
    if (GetParam().kind == CodecKind::kInt8) {
      const std::size_t in_tile = 65'540 - kWireTileElements;
      const std::size_t begin = kWireTileElements + in_tile / GetParam().block * GetParam().block;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool in_block = i >= begin && i < begin + GetParam().block;
        ASSERT_EQ(std::isnan(y[i]), in_block) << i;
      }
    } else if (std::isnan(bad)) {
      EXPECT_TRUE(std::isnan(y[65'540]));
    } else {
      EXPECT_EQ(y[65'540], bad);
    }
  }
}

TEST_P(EveryCodec, FiniteFp64BeyondFp32IsFlaggedToo) {
  const std::vector<double> x(100, 1e300);
  const Buffer wire = encode_values(GetParam(), x);
  EXPECT_EQ(read_wire_header(wire.bytes())->non_finite, GetParam().kind != CodecKind::kNone);
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodec, ::testing::ValuesIn(all_codecs()), [](const auto& info) {
  std::string name = to_string(info.param);
  std::ranges::replace(name, '/', '_');
  return name;
});

TEST(Codec, Fp16OverflowBecomesInfinityAndIsFlagged) {
  const std::vector<float> x = {1.0F, 70'000.0F};
  const Buffer wire = encode_values({.kind = CodecKind::kFp16}, x);
  EXPECT_TRUE(read_wire_header(wire.bytes())->non_finite);
  EXPECT_EQ(decode_values<float>(wire.bytes(), 2)[1], kInfinity);
}

TEST(Codec, Int8BytesStandWhereTheHeaderSays) {
  std::vector<float> x(65, 0.0F);
  x[0] = 127.0F;  // block 0: scale 1
  x[1] = -3.0F;
  x[64] = 25.4F;  // block 1: its only element
  const Buffer wire = encode_values({.kind = CodecKind::kInt8, .block = 64}, x);
  // 64 header + 2 scales + 65 codes = 73, padded to 80, + hash.
  ASSERT_EQ(wire.size(), 64U + 80U + 8U);
  const std::byte* tile = wire.data() + 64;
  float scales[2];
  std::memcpy(scales, tile, 8);
  EXPECT_EQ(scales[0], 1.0F);
  EXPECT_EQ(scales[1], 25.4F / 127.0F);
  EXPECT_EQ(static_cast<std::int8_t>(tile[8]), 127);
  EXPECT_EQ(static_cast<std::int8_t>(tile[9]), -3);
  EXPECT_EQ(static_cast<std::int8_t>(tile[8 + 64]), 127);
  for (std::size_t i = 73; i < 80; ++i) EXPECT_EQ(tile[i], std::byte{0});
  std::uint64_t hash = 0;
  std::memcpy(&hash, tile + 80, 8);
  EXPECT_EQ(hash, xxh3(BytesView(tile, 80)));
}

TEST(Codec, EncodedBytesHasTheFramingOfItsTiles) {
  const CodecSpec int8{.kind = CodecKind::kInt8, .block = 256};
  EXPECT_EQ(encoded_bytes(int8, 0, DType::kF32), 64U);
  EXPECT_EQ(encoded_bytes(int8, 65536, DType::kF32), 64U + 65536 + 4 * 256 + 8);
  EXPECT_EQ(encoded_bytes(int8, 65537, DType::kF32), 64U + 65536 + 4 * 256 + 8 + 8 + 8);
  EXPECT_EQ(encoded_bytes({}, 65537, DType::kF64), 64U + 65536 * 8 + 8 + 8 + 8);
  EXPECT_EQ(encoded_bytes({.kind = CodecKind::kFp16}, 3, DType::kF64), 64U + 8 + 8);
}

TEST(ParseCodec, KnowsItsNamesAndKeepsBlockForInt8Only) {
  EXPECT_EQ(parse_codec("none", 64), (CodecSpec{}));
  EXPECT_EQ(parse_codec("fp16", 64), (CodecSpec{.kind = CodecKind::kFp16}));
  EXPECT_EQ(parse_codec("bf16", 0), (CodecSpec{.kind = CodecKind::kBf16}));
  EXPECT_EQ(parse_codec("int8", 64), (CodecSpec{.kind = CodecKind::kInt8, .block = 64}));
  EXPECT_EQ(to_string(CodecSpec{.kind = CodecKind::kInt8, .block = 64}), "int8/64");
  EXPECT_EQ(to_string(CodecSpec{.kind = CodecKind::kBf16}), "bf16");
}

TEST(ParseCodec, UnknownNameGetsTheNearestKnownOne) {
  const auto codec = parse_codec("fp61", 256);
  ASSERT_FALSE(codec.has_value());
  EXPECT_EQ(codec.error().code, ErrorCode::kUserMistake);
  EXPECT_EQ(codec.error().what,
            "unknown codec \"fp61\": expected none, fp16, bf16 or int8; did you mean \"fp16\"?");
  EXPECT_EQ(parse_codec("zstd", 256).error().what,
            "unknown codec \"zstd\": expected none, fp16, bf16 or int8");
}

TEST(ParseCodec, RefusesBlocksOutOfRange) {
  for (const std::uint32_t block : {0U, 1U, 32U, 96U, 255U, 8192U, 1U << 31}) {
    const auto codec = parse_codec("int8", block);
    ASSERT_FALSE(codec.has_value()) << block;
    EXPECT_EQ(codec.error().code, ErrorCode::kUserMistake);
    EXPECT_THAT(codec.error().what, ::testing::HasSubstr(std::to_string(block)));
    EXPECT_THAT(codec.error().what, ::testing::HasSubstr("64 to 4096"));
  }
}

}  // namespace
}  // namespace swarmline
