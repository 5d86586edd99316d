// What every codec promises: exact sizes, the documented bytes, and values back as its kernels give
// them.

#include "compression/codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>

#include "base/byte_ops.h"
#include "base/hash.h"
#include "compression/measure.h"
#include "compression/wire.h"
#include "kernels/kernels.h"
#include "tests/compression/wire_values.h"

namespace swarmline {
namespace {

using testing::all_codecs;
using testing::decode_values;
using testing::encode_values;
using testing::kSizes;
using testing::same_bits;
using testing::samples;
using testing::view;
using testing::writable;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The `kept` of largest magnitude, by sorting.
std::vector<float> largest(const std::vector<float>& x, std::size_t kept) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(std::abs(x[b]), a) < std::pair(std::abs(x[a]), b);
  });
  std::vector<float> y(x.size(), 0.0F);
  for (std::size_t k = 0; k < kept; ++k) y[order[k]] = x[order[k]];
  return y;
}

// What a codec makes of one tile, without its wire format.
std::vector<float> through_tile(const CodecSpec& codec, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  if (const auto spec = quant_spec(codec)) {
    std::vector<std::byte> scales(kernels::quant_blocks(*spec, x.size()) *
                                  kernels::scale_bytes(spec->scales));
    std::vector<std::uint8_t> codes(kernels::code_bytes(*spec, x.size()));
    kernels::quantize(*spec, kernels::FloatKind::kF32, x.data(), x.size(), nullptr, scales.data(),
                      codes.data());
    kernels::dequantize(*spec, scales.data(), codes.data(), x.size(), kernels::FloatKind::kF32,
                        y.data());
    return y;
  }
  switch (codec.kind) {
    case CodecKind::kFp16:
      std::ranges::transform(x, y.begin(),
                             [](float v) { return static_cast<float>(static_cast<_Float16>(v)); });
      return y;
    case CodecKind::kBf16:
      std::ranges::transform(x, y.begin(), [](float v) {
        const auto bits = std::bit_cast<std::uint32_t>(v);
        return std::bit_cast<float>((bits + 0x7FFFU + (bits >> 16) % 2) & 0xFFFF0000U);
      });
      return y;
    case CodecKind::kTopK:
      return largest(x, (std::size_t{codec.kept} * x.size() + 65535) / 65536);
    default:
      return x;
  }
}
std::vector<float> through_codec(const CodecSpec& codec, const std::vector<float>& x) {
  std::vector<float> y;
  for (std::size_t begin = 0; begin < x.size(); begin += kWireTileElements) {
    const std::size_t end = std::min<std::size_t>(begin + kWireTileElements, x.size());
    const std::vector<float> tile(x.begin() + static_cast<std::ptrdiff_t>(begin),
                                  x.begin() + static_cast<std::ptrdiff_t>(end));
    const std::vector<float> out = through_tile(codec, tile);
    y.insert(y.end(), out.begin(), out.end());
  }
  return y;
}

class EveryCodec : public ::testing::TestWithParam<CodecSpec> {};

TEST_P(EveryCodec, RoundTripAtEverySizeOfFp32) {
  for (const std::size_t n : kSizes) {
    const std::vector<float> x = samples<float>(n, n);
    const Buffer wire = encode_values(GetParam(), x);
    ASSERT_EQ(wire.size(), encoded_bytes(GetParam(), n, DType::kF32));
    ASSERT_EQ(wire.size() % 64, 0U);
    const auto header = read_wire_header(wire.bytes());
    ASSERT_TRUE(header.has_value()) << header.error().what;
    EXPECT_EQ(header->codec, GetParam());
    EXPECT_EQ(header->source, DType::kF32);
    EXPECT_EQ(header->elements, n);
    EXPECT_EQ(header->payload_bytes, wire.size() - kWireHeaderBytes);
    EXPECT_EQ(header->non_finite, GetParam().kind == CodecKind::kNone);
    EXPECT_FALSE(header->stochastic);
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

TEST_P(EveryCodec, HalvesAreSourcesAndTargetsToo) {
  const std::size_t n = 70'003;
  const std::vector<float> x = samples<float>(n, 3);
  for (const bool brain : {false, true}) {
    const DType dtype = brain ? DType::kBF16 : DType::kF16;
    const auto narrow = brain ? kernels::fp32_to_bf16 : kernels::fp32_to_fp16;
    const auto widen = brain ? kernels::bf16_to_fp32 : kernels::fp16_to_fp32;
    std::vector<std::uint16_t> halves(n), back(n), expected(n);
    std::vector<float> wide(n);
    narrow(x.data(), halves.data(), n);
    widen(halves.data(), wide.data(), n);
    const Buffer wire = encode(GetParam(), view(halves), dtype);
    ASSERT_EQ(wire.size(), encoded_bytes(GetParam(), n, dtype));
    ASSERT_TRUE(decode(wire.bytes(), dtype, writable(back)).has_value());
    narrow(through_codec(GetParam(), wide).data(), expected.data(), n);
    EXPECT_EQ(back, expected);
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
    ASSERT_TRUE(same_bytes(wire.bytes(), again.bytes()));

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
    if (const std::size_t block = GetParam().block; block != 0) {
      const std::size_t begin = kWireTileElements + 4 / block * block;
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(std::isnan(y[i]), i >= begin && i < begin + block) << i;
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
  EXPECT_TRUE(read_wire_header(wire.bytes())->non_finite);
}

TEST_P(EveryCodec, AddingIsDecodingAndAdding) {
  for (const bool bad : {false, true}) {
    std::vector<float> x = samples<float>(140'001, 8);
    if (bad) x[70'000] = kNan;
    const Buffer wire = encode_values(GetParam(), x);
    std::vector<float> sum = samples<float>(x.size(), 9);
    std::vector<float> expected = decode_values<float>(wire.bytes(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = sum[i] + expected[i];
    ASSERT_TRUE(decode_add(wire.bytes(), DType::kF32, writable(sum)).has_value());
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(sum[i])) << i;
      } else {
        ASSERT_EQ(sum[i], expected[i]) << i;
      }
    }
  }
  const std::vector<double> wide(100, 0.75);
  const Buffer wire = encode_values(GetParam(), wide);
  std::vector<double> sum(100, 1.0), expected = decode_values<double>(wire.bytes(), 100);
  for (double& value : expected) value += 1;
  ASSERT_TRUE(decode_add(wire.bytes(), DType::kF64, writable(sum)).has_value());
  EXPECT_EQ(sum, expected);
}

TEST_P(EveryCodec, FeedbackKeepsWhatDidNotTravel) {
  const std::size_t n = 66'000;
  std::vector<float> residual(n, 0.0F);
  std::vector<double> total(n, 0), arrived(n, 0), magnitude(n, 1);
  for (int step = 0; step < 4; ++step) {
    const std::vector<float> x = samples<float>(n, 40 + static_cast<std::uint64_t>(step));
    std::vector<float> next(n);
    const Buffer wire = encode_with_feedback(GetParam(), view(x), DType::kF32,
                                             {.current = view(residual), .next = writable(next)});
    const std::vector<float> y = decode_values<float>(wire.bytes(), n);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(next[i], x[i] + residual[i] - y[i]) << i;
      total[i] += x[i];
      arrived[i] += y[i];
      magnitude[i] += std::abs(x[i]) + std::abs(y[i]);
    }
    residual = next;
  }
  for (std::size_t i = 0; i < n; ++i)
    ASSERT_NEAR(total[i], arrived[i] + residual[i], 1e-6 * magnitude[i]) << i;
}

TEST_P(EveryCodec, FeedbackOfFp64AndOfWhatIsNotFinite) {
  std::vector<double> x = samples<double>(5000, 4), residual(5000, 0.25);
  x[17] = std::numeric_limits<double>::infinity();
  const Buffer wire = encode_with_feedback(GetParam(), view(x), DType::kF64,
                                           {.current = view(residual), .next = writable(residual)});
  EXPECT_TRUE(read_wire_header(wire.bytes())->non_finite);
  const std::vector<double> y = decode_values<double>(wire.bytes(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double left = x[i] + 0.25 - y[i];
    EXPECT_EQ(residual[i], std::isfinite(left) ? left : 0) << i;
  }
}

TEST_P(EveryCodec, StochasticRoundingIsNamedByItsKey) {
  const std::vector<float> x = samples<float>(70'000, 6);
  const kernels::StochasticKey key{.seed = 11, .stream = {1, 2, 3}};
  kernels::StochasticKey other = key;
  other.stream[1] = 4;
  const Buffer nearest = encode_values(GetParam(), x);
  const Buffer first = encode_values(GetParam(), x, &key);
  const Buffer again = encode_values(GetParam(), x, &key);
  const Buffer second = encode_values(GetParam(), x, &other);
  EXPECT_TRUE(same_bytes(first.bytes(), again.bytes()));
  const bool can = can_round_stochastically(GetParam());
  EXPECT_EQ(read_wire_header(first.bytes())->stochastic, can);
  EXPECT_EQ(same_bytes(first.bytes(), second.bytes()), !can);
  EXPECT_EQ(same_bytes(first.bytes(), nearest.bytes()), !can);
  if (GetParam().kind == CodecKind::kNone) return;
  const std::vector<double> wide(x.begin(), x.end());
  EXPECT_EQ(decode_values<float>(encode_values(GetParam(), wide, &key).bytes(), x.size()),
            decode_values<float>(first.bytes(), x.size()))
      << "the same draws from another type";
}

TEST_P(EveryCodec, WithoutChecksumsTheSameCodesStandAtTheSamePlaces) {
  const std::vector<float> x = samples<float>(70'000, 8);
  CodecSpec bare = GetParam();
  bare.checksums = false;
  const Buffer with = encode_values(GetParam(), x), without = encode_values(bare, x);
  ASSERT_EQ(with.size(), without.size());
  const auto header = read_wire_header(without.bytes());
  ASSERT_TRUE(header.has_value()) << header.error().what;
  EXPECT_EQ(header->codec, bare);
  for (Tile tile; next_tile(*header, tile);) {
    const std::size_t end = tile.at + tile.shape.hash_at();
    EXPECT_TRUE(same_bytes(with.bytes().subspan(tile.at, end - tile.at),
                           without.bytes().subspan(tile.at, end - tile.at)));
    std::uint64_t hash = 1;
    std::memcpy(&hash, without.data() + end, sizeof hash);
    EXPECT_EQ(hash, 0U);
  }
  EXPECT_EQ(decode_values<float>(without.bytes(), x.size()),
            decode_values<float>(with.bytes(), x.size()));
}

TEST_P(EveryCodec, SealingFillsWhatADeviceLeaves) {
  const std::vector<float> x = samples<float>(70'000, 12);
  const Buffer wire = encode_values(GetParam(), x);
  Buffer again = Buffer::copy_of(wire.bytes());
  std::byte* at = again.data() + kWireHeaderBytes;
  for (const std::size_t n : {65'536UL, 70'000UL - 65'536UL}) {
    const TileShape shape = tile_shape(GetParam(), n, DType::kF32);
    std::memset(at + shape.scale_bytes, 0xEE, shape.codes_at() - shape.scale_bytes);
    std::memset(at + shape.codes_at() + shape.code_bytes, 0xEE,
                shape.total_bytes() - shape.codes_at() - shape.code_bytes);
    at += shape.total_bytes();
  }
  std::memset(again.data(), 0xEE, kWireHeaderBytes);
  seal_wire(*read_wire_header(wire.bytes()), again.bytes());
  EXPECT_TRUE(same_bytes(wire.bytes(), again.bytes()));
}

TEST_P(EveryCodec, ErrorIsMeasured) {
  const std::vector<float> x = samples<float>(70'000, 13);
  const std::vector<float> y = through_codec(GetParam(), x);
  CodecError expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected.squared_error += (double{y[i]} - x[i]) * (double{y[i]} - x[i]);
    expected.squared_norm += double{x[i]} * x[i];
  }
  const auto error = measure_error(encode_values(GetParam(), x).bytes(), view(x), DType::kF32);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->squared_error, expected.squared_error);
  EXPECT_EQ(error->relative(), std::sqrt(expected.squared_error / expected.squared_norm));
  EXPECT_LT(error->relative(), GetParam().kind == CodecKind::kTopK ? 1 : 0.5);
}

TEST_P(EveryCodec, ASampleMeasuresTheBeginning) {
  const std::vector<float> x = samples<float>(70'000, 14);
  const kernels::StochasticKey key{.seed = 2};
  for (const kernels::StochasticKey* rounding : {&key, static_cast<decltype(&key)>(nullptr)}) {
    for (const std::size_t n : {1UL, 66'000UL, 1'000'000UL}) {
      const TensorSamplePtr sample = host_sample(view(x), DType::kF32, n);
      ASSERT_TRUE(sample);
      EXPECT_EQ(sample->elements(), std::min(n, x.size()));
      const auto measured = sample->measure(GetParam(), rounding);
      ASSERT_TRUE(measured) << measured.error().what;
      const std::vector<float> first(x.begin(), x.begin() + static_cast<long>(sample->elements()));
      const Buffer wire = encode_values(GetParam(), first, rounding);
      const auto error = measure_error(wire.bytes(), view(first), DType::kF32);
      EXPECT_EQ(measured->error.squared_error, error->squared_error);
      EXPECT_EQ(measured->error.squared_norm, error->squared_norm);
      EXPECT_FALSE(measured->time) << "the host has no clock here";
    }
  }
  EXPECT_FALSE(host_sample(view(x), DType::kF32, 0));
  EXPECT_FALSE(host_sample({}, DType::kF32, 10));
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodec, ::testing::ValuesIn(all_codecs()),
                         [](const auto& info) { return testing::test_name(info.param); });

TEST(Codec, Fp16OverflowBecomesInfinityAndIsFlagged) {
  const std::vector<float> x = {1.0F, 70'000.0F};
  const Buffer wire = encode_values({.kind = CodecKind::kFp16}, x);
  EXPECT_TRUE(read_wire_header(wire.bytes())->non_finite);
  EXPECT_EQ(decode_values<float>(wire.bytes(), 2)[1], kInfinity);
}

TEST(Codec, Lin8BytesStandWhereTheHeaderSays) {
  std::vector<float> x(65, 0.0F);
  x[0] = 127.0F;  // block 0: scale 1
  x[1] = -3.0F;
  x[64] = 25.4F;  // block 1: its only element
  const Buffer wire = encode_values({.kind = CodecKind::kLin8, .block = 64}, x);
  // 2 scales padded to 64, 65 codes and the hash padded to 128.
  ASSERT_EQ(wire.size(), 64U + 64U + 128U);
  const std::byte* tile = wire.data() + 64;
  float scales[2];
  std::memcpy(scales, tile, 8);
  EXPECT_EQ(scales[0], 1.0F);
  EXPECT_EQ(scales[1], 25.4F / 127.0F);
  EXPECT_EQ(static_cast<std::int8_t>(tile[64]), 127);
  EXPECT_EQ(static_cast<std::int8_t>(tile[65]), -3);
  EXPECT_EQ(static_cast<std::int8_t>(tile[64 + 64]), 127);
  for (std::size_t i = 8; i < 64; ++i) EXPECT_EQ(tile[i], std::byte{0});
  for (std::size_t i = 64 + 65; i < 184; ++i) EXPECT_EQ(tile[i], std::byte{0});
  std::uint64_t hash = 0;
  std::memcpy(&hash, tile + 184, 8);
  EXPECT_EQ(hash, xxh3(BytesView(tile, 184)));
}

TEST(Codec, TopKBytesStandWhereTheHeaderSays) {
  std::vector<float> x(200, 0.5F);
  x[3] = -7.0F;
  x[150] = 2.0F;
  CodecSpec codec{.kind = CodecKind::kTopK, .kept = 65536 * 3 / 200};  // 3 of 200
  const Buffer wire = encode_values(codec, x);
  ASSERT_EQ(wire.size(), 64U + 64U + 64U);
  std::uint16_t positions[3];
  float values[3];
  std::memcpy(positions, wire.data() + 64, sizeof positions);
  std::memcpy(values, wire.data() + 128, sizeof values);
  EXPECT_THAT(positions, ::testing::ElementsAre(0, 3, 150));  // of equals the lowest index
  EXPECT_THAT(values, ::testing::ElementsAre(0.5F, -7.0F, 2.0F));
}

TEST(Codec, EncodedBytesHasTheFramingOfItsTiles) {
  const CodecSpec lin8 = *parse_codec("lin8");
  EXPECT_EQ(encoded_bytes(lin8, 0, DType::kF32), 64U);
  EXPECT_EQ(encoded_bytes(lin8, 65536, DType::kF32), 64U + 4 * 256 + 65536 + 64);
  EXPECT_EQ(encoded_bytes(lin8, 65537, DType::kF32), 64U + 4 * 256 + 65536 + 64 + 128);
  EXPECT_EQ(encoded_bytes(*parse_codec("h8"), 1, DType::kF32), 64U + 64 + 128);
  EXPECT_EQ(encoded_bytes(*parse_codec("h4"), 65536, DType::kF32), 64U + 8192 + 32768 + 64);
  EXPECT_EQ(encoded_bytes({}, 65537, DType::kF64), 64U + 65536 * 8 + 64 + 64);
  EXPECT_EQ(encoded_bytes({.kind = CodecKind::kFp16}, 3, DType::kF64), 64U + 64);
  EXPECT_EQ(encoded_bytes(*parse_codec("topk"), 65536, DType::kF32), 64U + 1344 + 656 * 4 + 64);
}

TEST(ParseCodec, KnowsItsNamesAndKeepsBlockForLin8AndDyn8Only) {
  EXPECT_EQ(parse_codec("none", {.block = 64}), (CodecSpec{}));
  EXPECT_EQ(parse_codec("fp16"), (CodecSpec{.kind = CodecKind::kFp16}));
  EXPECT_EQ(parse_codec("lin8", {.block = 64}), (CodecSpec{.kind = CodecKind::kLin8, .block = 64}));
  EXPECT_EQ(parse_codec("lin8"), (CodecSpec{.kind = CodecKind::kLin8, .block = 256}));
  EXPECT_EQ(parse_codec("h8", {.block = 512, .scales = kernels::ScaleKind::kBf16}),
            (CodecSpec{.kind = CodecKind::kH8, .block = 64, .scales = kernels::ScaleKind::kBf16}));
  EXPECT_EQ(parse_codec("fp8"), (CodecSpec{.kind = CodecKind::kE4M3, .block = 128}));
  EXPECT_EQ(parse_codec("topk", {.topk = 0.5}),
            (CodecSpec{.kind = CodecKind::kTopK, .kept = 32768}));
  EXPECT_EQ(to_string(CodecSpec{.kind = CodecKind::kLin8, .block = 64}), "lin8/64");
  EXPECT_EQ(to_string(CodecSpec{.kind = CodecKind::kBf16}), "bf16");
  EXPECT_EQ(to_string(*parse_codec("h8", {.scales = kernels::ScaleKind::kBf16})), "h8+bf16");
}

TEST(ParseCodec, UnknownNameGetsTheNearestKnownOne) {
  const auto codec = parse_codec("fp61");
  ASSERT_FALSE(codec.has_value());
  EXPECT_EQ(codec.error().code, ErrorCode::kUserMistake);
  EXPECT_EQ(codec.error().what,
            "unknown codec \"fp61\": expected none, fp16, bf16, lin8, dyn8, h8, fp8, e5m2, int4, "
            "h4 or topk; did you mean \"fp16\"?");
  EXPECT_THAT(parse_codec("zstd").error().what, ::testing::EndsWith("h4 or topk"));
  EXPECT_THAT(parse_codec("int8").error().what, ::testing::HasSubstr("int8 is called lin8 now"));
}

TEST(ParseCodec, RefusesBlocksAndSharesOutOfRange) {
  for (const std::uint32_t block : {1U, 32U, 96U, 255U, 8192U, 1U << 31}) {
    const auto codec = parse_codec("lin8", {.block = block});
    ASSERT_FALSE(codec.has_value()) << block;
    EXPECT_EQ(codec.error().code, ErrorCode::kUserMistake);
    EXPECT_THAT(codec.error().what, ::testing::HasSubstr(std::to_string(block)));
    EXPECT_THAT(codec.error().what, ::testing::HasSubstr("64 to 4096"));
  }
  for (const double share : {0.0, -1.0, 1.1, std::nan("")})
    EXPECT_FALSE(parse_codec("topk", {.topk = share}).has_value()) << share;
}

}  // namespace
}  // namespace swarmline
