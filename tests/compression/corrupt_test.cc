// Bytes that are not what encode() wrote are refused, whatever was done to them.

#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/hash.h"
#include "compression/codec.h"
#include "compression/wire.h"
#include "tests/compression/wire_values.h"

namespace swarmline {
namespace {

constexpr CodecSpec kLin8{.kind = CodecKind::kLin8, .block = 64};

Buffer wire_of(const CodecSpec& codec, std::size_t n) {
  const auto x = testing::samples<float>(n, 9);
  return encode(codec, {reinterpret_cast<const std::byte*>(x.data()), n * sizeof(float)},
                DType::kF32);
}
ErrorCode decode_error(BytesView wire, std::size_t n, DType target = DType::kF32) {
  std::vector<std::byte> out(n * size_bytes(target));
  const auto decoded = decode(wire, target, out);
  EXPECT_FALSE(decoded.has_value());
  return decoded ? ErrorCode::kStopped : decoded.error().code;
}
template <typename T>
void put(Buffer& wire, std::size_t at, T value) {
  std::memcpy(wire.data() + at, &value, sizeof value);
}
// Makes the header's own checksum right again.
void seal_header(Buffer& wire) {
  put(wire, 56, xxh3(wire.bytes().first(56)));
}

TEST(CorruptWire, EverySingleBitIsNoticed) {
  for (const CodecSpec& codec : testing::all_codecs()) {
    Buffer wire = wire_of(codec, 131);
    for (std::size_t bit = 0; bit < wire.size() * 8; ++bit) {
      const auto mask = static_cast<std::byte>(1U << bit % 8);
      wire.data()[bit / 8] ^= mask;
      ASSERT_EQ(decode_error(wire.bytes(), 131), ErrorCode::kCorrupt) << bit;
      wire.data()[bit / 8] ^= mask;
    }
    std::vector<std::byte> out(131 * sizeof(float));
    EXPECT_TRUE(decode(wire.bytes(), DType::kF32, out).has_value());
  }
}

// Found by the fuzzer: -0 counts as a bad scale, so nothing of such a buffer may reach the sum.
TEST(CorruptWire, AScaleOfMinusZeroIsNotAdded) {
  Buffer wire = wire_of(kLin8, 131);
  put(wire, kWireHeaderBytes + 8, -0.0F);  // the third block's scale
  const std::size_t hash_at = tile_shape(kLin8, 131, DType::kF32).hash_at();
  put(wire, kWireHeaderBytes + hash_at, xxh3(wire.bytes().subspan(kWireHeaderBytes, hash_at)));
  EXPECT_EQ(decode_error(wire.bytes(), 131), ErrorCode::kCorrupt);
  std::vector<float> sum(131, 1);
  const auto added = decode_add(wire.bytes(), DType::kF32, std::as_writable_bytes(std::span(sum)));
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(sum, std::vector<float>(131, 1));
}

// Without a codec values are added where they lie: all of them are looked at before the first is.
TEST(CorruptWire, OfValuesThatDoNotAllCheckNoneIsAdded) {
  const std::size_t n = kWireTileElements + 100;
  const std::size_t last =
      kWireHeaderBytes + tile_shape({}, kWireTileElements, DType::kF32).total_bytes();
  const auto refused = [&](BytesView wire) {
    std::vector<float> sum(n, 1);
    const auto added = decode_add(wire, DType::kF32, testing::writable(sum));
    EXPECT_FALSE(added.has_value());
    EXPECT_EQ(sum, std::vector<float>(n, 1));
    const auto plain =
        PlainValues::of(SharedBytes(Buffer::copy_of(wire)), DType::kF32, n * sizeof(float));
    const auto decoded = stream_decode(wire, DType::kF32, testing::writable(sum));
    return !added && !plain && !decoded && added.error().code == ErrorCode::kCorrupt &&
           plain.error().what == added.error().what && decoded.error().what == added.error().what;
  };
  Buffer wire = wire_of({}, n);
  wire.data()[last + 7] ^= std::byte{1};
  EXPECT_TRUE(refused(wire.bytes()));
  // A NaN in a buffer whose writer says that there is none, with a checksum that is right.
  WireHeader header = *read_wire_header(wire.bytes());
  header.non_finite = false;
  write_wire_header(header, wire.data());
  put(wire, last + 4, std::numeric_limits<float>::quiet_NaN());
  const std::size_t hash_at = tile_shape({}, 100, DType::kF32).hash_at();
  put(wire, last + hash_at, xxh3(wire.bytes().subspan(last, hash_at)));
  EXPECT_TRUE(refused(wire.bytes()));
}

TEST(CorruptWire, EveryTileIsChecked) {
  const std::size_t n = 3 * kWireTileElements + 10;
  Buffer wire = wire_of(kLin8, n);
  const std::size_t tile_bytes = tile_shape(kLin8, kWireTileElements, DType::kF32).total_bytes();
  for (std::size_t tile = 0; tile < 4; ++tile) {
    const std::size_t at = kWireHeaderBytes + tile * tile_bytes + 5;
    wire.data()[at] ^= std::byte{4};
    EXPECT_EQ(decode_error(wire.bytes(), n), ErrorCode::kCorrupt);
    wire.data()[at] ^= std::byte{4};
  }
}

TEST(CorruptWire, WithoutChecksumsItIsTheLinkThatNoticesAChangedCode) {
  CodecSpec codec = kLin8;
  codec.checksums = false;
  Buffer wire = wire_of(codec, 200);
  wire.data()[wire.size() - 64] ^= std::byte{4};
  std::vector<float> out(200);
  EXPECT_TRUE(
      decode(wire.bytes(), DType::kF32, std::as_writable_bytes(std::span(out))).has_value());
  wire.data()[24] ^= std::byte{1};  // the header has its checksum all the same
  EXPECT_EQ(decode_error(wire.bytes(), 200), ErrorCode::kCorrupt);
}

TEST(CorruptWire, EveryOtherLengthIsRefused) {
  const Buffer wire = wire_of(kLin8, 200);
  std::vector<std::byte> longer(wire.size() + 80);
  copy_bytes(wire.bytes(), longer);
  for (std::size_t size = 0; size <= longer.size(); ++size) {
    if (size == wire.size()) continue;
    ASSERT_EQ(decode_error(BytesView(longer).first(size), 200), ErrorCode::kCorrupt) << size;
    ASSERT_FALSE(read_wire_header(BytesView(longer).first(size)).has_value());
  }
}

struct Forgery {
  const char* name;
  std::function<void(Buffer&)> forge;
  const char* sentence;
};

class ForgedHeader : public ::testing::TestWithParam<Forgery> {};

TEST_P(ForgedHeader, IsRefusedThoughItsChecksumIsRight) {
  Buffer wire = wire_of(kLin8, 200);
  GetParam().forge(wire);
  seal_header(wire);
  const auto header = read_wire_header(wire.bytes());
  ASSERT_FALSE(header.has_value());
  EXPECT_EQ(header.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(header.error().what, ::testing::HasSubstr(GetParam().sentence));
  EXPECT_EQ(decode_error(wire.bytes(), 200), ErrorCode::kCorrupt);
}

const Forgery kForgeries[] = {
    {"magic", [](Buffer& w) { put<std::uint32_t>(w, 0, 0x31515754); }, "wrong magic"},
    {"version", [](Buffer& w) { put<std::uint16_t>(w, 4, 1); }, "version 1"},
    {"codec", [](Buffer& w) { put<std::uint8_t>(w, 6, 11); }, "unknown codec 11"},
    {"source", [](Buffer& w) { put<std::uint8_t>(w, 7, 4); }, "source"},
    {"source_bytes", [](Buffer& w) { put<std::uint8_t>(w, 7, 255); }, "source"},
    {"scale", [](Buffer& w) { put<std::uint8_t>(w, 8, 2); }, "scale"},
    {"scale_without_blocks",
     [](Buffer& w) {
       put<std::uint8_t>(w, 6, 2);
       put<std::uint8_t>(w, 8, 3);
       put<std::uint32_t>(w, 12, 0);
     },
     "scale type 3"},
    {"flags", [](Buffer& w) { put<std::uint8_t>(w, 9, 8); }, "reserved"},
    {"reserved_10", [](Buffer& w) { put<std::uint16_t>(w, 10, 1); }, "reserved"},
    {"stochastic",
     [](Buffer& w) {
       put<std::uint8_t>(w, 6, 4);
       put<std::uint8_t>(w, 9, 2);
     },
     "never rounds stochastically"},
    {"kept", [](Buffer& w) { put<std::uint32_t>(w, 20, 655); }, "655 elements kept"},
    {"kept_huge",
     [](Buffer& w) {
       put<std::uint8_t>(w, 6, 10);
       put<std::uint32_t>(w, 12, 0);
       put<std::uint32_t>(w, 20, 65537);
     },
     "65537 elements kept"},
    {"kept_nothing",
     [](Buffer& w) {
       put<std::uint8_t>(w, 6, 10);
       put<std::uint32_t>(w, 12, 0);
     },
     "0 elements kept"},
    {"as_topk",
     [](Buffer& w) {
       put<std::uint8_t>(w, 6, 10);
       put<std::uint32_t>(w, 12, 0);
       put<std::uint32_t>(w, 20, 655);
     },
     "length"},
    {"reserved_40", [](Buffer& w) { put<std::uint8_t>(w, 40, 1); }, "reserved"},
    {"reserved_55", [](Buffer& w) { put<std::uint8_t>(w, 55, 128); }, "reserved"},
    {"block_zero", [](Buffer& w) { put<std::uint32_t>(w, 12, 0); }, "block of 0"},
    {"block_odd", [](Buffer& w) { put<std::uint32_t>(w, 12, 65); }, "block of 65"},
    {"block_huge", [](Buffer& w) { put<std::uint32_t>(w, 12, 1U << 31); }, "block of"},
    {"tile", [](Buffer& w) { put<std::uint32_t>(w, 16, 32768); }, "tile"},
    {"more_elements", [](Buffer& w) { put<std::uint64_t>(w, 24, 300); }, "length"},
    {"no_elements", [](Buffer& w) { put<std::uint64_t>(w, 24, 0); }, "length"},
    {"all_elements", [](Buffer& w) { put<std::uint64_t>(w, 24, ~0ULL); }, "length"},
    {"overflow", [](Buffer& w) { put<std::uint64_t>(w, 24, 1ULL << 63); }, "length"},
    {"payload", [](Buffer& w) { put<std::uint64_t>(w, 32, 8); }, "length"},
    {"payload_huge", [](Buffer& w) { put<std::uint64_t>(w, 32, ~0ULL); }, "length"},
    {"as_fp16", [](Buffer& w) { put<std::uint8_t>(w, 6, 1); }, "block"},
    {"as_none",
     [](Buffer& w) {
       put<std::uint8_t>(w, 6, 0);
       put<std::uint32_t>(w, 12, 0);
     },
     "length"},
};
INSTANTIATE_TEST_SUITE_P(All, ForgedHeader, ::testing::ValuesIn(kForgeries),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CorruptWire, NonFiniteWithoutItsFlagIsRefused) {
  for (const CodecSpec& codec : testing::all_codecs()) {
    for (const DType target : {DType::kF32, DType::kF64}) {
      if (codec.kind == CodecKind::kNone && target == DType::kF64) continue;
      std::vector<float> x(100, 1.0F);
      x[70] = std::numeric_limits<float>::quiet_NaN();
      Buffer wire = encode(codec, {reinterpret_cast<const std::byte*>(x.data()), 400}, DType::kF32);
      put<std::uint8_t>(wire, 9, 0);
      seal_header(wire);
      EXPECT_EQ(decode_error(wire.bytes(), 100, target), ErrorCode::kCorrupt);
    }
  }
}

TEST(IncompatibleWire, AnotherNumberOfElements) {
  const Buffer wire = wire_of(kLin8, 200);
  for (const std::size_t n : {0, 1, 199, 201, 100'000}) {
    EXPECT_EQ(decode_error(wire.bytes(), n), ErrorCode::kIncompatible);
    EXPECT_EQ(decode_error(wire.bytes(), n, DType::kF64), ErrorCode::kIncompatible);
  }
  std::vector<std::byte> odd(200 * sizeof(float) + 1);
  EXPECT_EQ(decode(wire.bytes(), DType::kF32, odd).error().code, ErrorCode::kIncompatible);
}

TEST(IncompatibleWire, CodecNoneDoesNotConvert) {
  const Buffer wire = wire_of({}, 200);
  EXPECT_EQ(decode_error(wire.bytes(), 200, DType::kF64), ErrorCode::kIncompatible);
}

}  // namespace
}  // namespace swarmline
