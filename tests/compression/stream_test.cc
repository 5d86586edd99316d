// Decoding while bytes arrive: whatever the split, the output and the error of decode().

#include <algorithm>

#include "compression/wire.h"
#include "tests/compression/wire_values.h"

namespace swarmline {
namespace {

using testing::all_codecs;
using testing::encode_values;
using testing::samples;
using testing::writable;

struct Outcome {
  std::vector<float> out;
  std::optional<Error> error;
};

// Feeds the buffer in pieces that `next(bytes fed so far)` gives.
template <typename Next>
Outcome feed(BytesView wire, std::size_t n, Next next) {
  Outcome outcome{.out = std::vector<float>(n, -1.0F), .error = {}};
  WireDecoder decoder(wire.size(), DType::kF32, writable(outcome.out));
  for (std::size_t fed = 0; fed < wire.size();) {
    fed = std::min(wire.size(), fed + next(fed));
    if (const auto step = decoder.advance(wire.first(fed)); !step) {
      outcome.error = step.error();
      EXPECT_FALSE(decoder.done());
      EXPECT_EQ(decoder.advance(wire.first(fed)).error().what, step.error().what);
      return outcome;
    }
    EXPECT_EQ(decoder.done(), fed == wire.size());
  }
  return outcome;
}

class EveryStream : public ::testing::TestWithParam<CodecSpec> {};

TEST_P(EveryStream, AnySplitGivesTheSame) {
  const std::size_t n = 2 * kWireTileElements + 77;
  const std::vector<float> x = samples<float>(n, 21);
  const Buffer wire = encode_values(GetParam(), x);
  const std::vector<float> whole = testing::decode_values<float>(wire.bytes(), n);
  Rng rng(3);
  for (const std::size_t most : {65UL, 5000UL, 300'000UL}) {
    const Outcome outcome =
        feed(wire.bytes(), n, [&](std::size_t) { return 1 + rng.next_u32() % most; });
    ASSERT_FALSE(outcome.error) << outcome.error->what;
    EXPECT_TRUE(testing::same_bits(outcome.out, whole));
  }
}

TEST_P(EveryStream, ATileIsThereAsSoonAsItsLastByteIs) {
  const std::size_t n = 3 * kWireTileElements;
  const Buffer wire = encode_values(GetParam(), samples<float>(n, 22));
  std::vector<float> out(n);
  WireDecoder decoder(wire.size(), DType::kF32, writable(out));
  const std::size_t tile = tile_shape(GetParam(), kWireTileElements, DType::kF32).total_bytes();
  const BytesView bytes = wire.bytes();
  for (std::size_t t = 0; t < 3; ++t) {
    const std::size_t end = kWireHeaderBytes + (t + 1) * tile;
    ASSERT_TRUE(decoder.advance(bytes.first(end - 1)).has_value());
    EXPECT_EQ(decoder.elements_done(), t * kWireTileElements);
    ASSERT_TRUE(decoder.advance(bytes.first(end)).has_value());
    EXPECT_EQ(decoder.elements_done(), (t + 1) * kWireTileElements);
  }
  EXPECT_TRUE(decoder.done());
}

TEST_P(EveryStream, BadBytesGiveTheErrorOfTheWhole) {
  const std::size_t n = 2 * kWireTileElements + 77;
  Buffer wire = encode_values(GetParam(), samples<float>(n, 23));
  std::vector<float> whole(n);
  for (const std::size_t at : {3UL, 30UL, 64UL, wire.size() / 2, wire.size() - 1}) {
    wire.data()[at] ^= std::byte{16};
    const auto expected = decode(wire.bytes(), DType::kF32, writable(whole));
    ASSERT_FALSE(expected.has_value());
    const Outcome outcome = feed(wire.bytes(), n, [](std::size_t) { return 1000; });
    ASSERT_TRUE(outcome.error.has_value()) << at;
    EXPECT_EQ(outcome.error->code, expected.error().code);
    EXPECT_EQ(outcome.error->what, expected.error().what);
    wire.data()[at] ^= std::byte{16};
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryStream, ::testing::ValuesIn(all_codecs()),
                         [](const auto& info) { return testing::test_name(info.param); });

TEST(WireDecoder, TheLengthIsCheckedBeforeAnythingIsDecoded) {
  const std::size_t n = kWireTileElements;
  const Buffer wire = encode_values(CodecSpec{}, samples<float>(n, 24));
  std::vector<float> out(n, -1.0F);
  WireDecoder longer(wire.size() + 64, DType::kF32, writable(out));
  const auto refused = longer.advance(wire.bytes().first(kWireHeaderBytes));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  std::vector<float> fewer(n - 1);
  WireDecoder another(wire.size(), DType::kF32, writable(fewer));
  EXPECT_EQ(another.advance(wire.bytes().first(kWireHeaderBytes)).error().code,
            ErrorCode::kIncompatible);
  EXPECT_EQ(out, std::vector<float>(n, -1.0F));
}

TEST(WireDecoder, ABufferShorterThanAHeader) {
  std::vector<std::byte> bytes(10);
  WireDecoder decoder(bytes.size(), DType::kF32, {});
  ASSERT_TRUE(decoder.advance(BytesView(bytes).first(9)).has_value());
  EXPECT_EQ(decoder.advance(bytes).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace swarmline
