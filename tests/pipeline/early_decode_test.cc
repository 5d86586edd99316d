#include "pipeline/stage/microbatches/early_decode.h"

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kElements = 3 * 65'536 + 5;
constexpr std::uint16_t kKind = 51;
constexpr PeerId kPeer{4};

AttemptId attempt(std::uint32_t index) {
  return {{{PhaseKind::kTrain, 2}, index}, Attempt{0}};
}

struct Tensor {
  explicit Tensor(std::uint64_t seed, std::uint64_t elements = kElements) : values(elements * 4) {
    Rng rng(seed);
    for (float& value : values.as<float>()) value = unit_float(rng.next_u32());
    frame.kind = kKind;
    frame.payload = {SharedBytes(encode(*parse_codec("none"), values.bytes(), DType::kF32))};
  }
  Arrival arrived(std::size_t bytes) const {
    return {.kind = kKind,
            .meta = {},
            .arrived = frame.received_payload().first(bytes),
            .payload_bytes = frame.payload_bytes()};
  }
  Buffer values;
  Frame frame;
};

TEST(EarlyDecode, ATensorIsReadyWhenItsFrameIs) {
  EarlyDecode early(kElements, DType::kF32);
  const Tensor tensor(1);
  for (std::size_t bytes = 10; bytes < tensor.frame.payload_bytes(); bytes += 100'000)
    early.on_arriving(kPeer, attempt(0), tensor.arrived(bytes));
  const SharedBytes out = early.take(kPeer, attempt(0), tensor.frame);
  EXPECT_TRUE(same_bytes(out.view(), tensor.values.bytes()));
  EXPECT_EQ(early.taken(), 1U);
  EXPECT_TRUE(early.take(kPeer, attempt(0), tensor.frame).empty()) << "taken twice";
}

TEST(EarlyDecode, ATensorOfBf16ComesAsItIs) {
  EarlyDecode early(2 * kElements, DType::kBF16);
  Tensor tensor(1);  // its bytes, as twice as many elements
  tensor.frame.payload = {
      SharedBytes(encode(*parse_codec("none"), tensor.values.bytes(), DType::kBF16))};
  early.on_arriving(kPeer, attempt(0), tensor.arrived(300'000));
  const SharedBytes out = early.take(kPeer, attempt(0), tensor.frame);
  EXPECT_TRUE(same_bytes(out.view(), tensor.values.bytes()));
}

TEST(EarlyDecode, ANewAttemptReplacesTheOldOneOfItsNeighbour) {
  EarlyDecode early(kElements, DType::kF32);
  const Tensor first(1), second(2), other(3);
  early.on_arriving(kPeer, attempt(0), first.arrived(300'000));
  early.on_arriving(PeerId{5}, attempt(7), other.arrived(300'000));
  early.on_arriving(kPeer, attempt(1), second.arrived(200'000));
  const SharedBytes out = early.take(kPeer, attempt(1), second.frame);
  EXPECT_TRUE(same_bytes(out.view(), second.values.bytes()));
  EXPECT_TRUE(
      same_bytes(early.take(PeerId{5}, attempt(7), other.frame).view(), other.values.bytes()));
  early.on_arriving(kPeer, attempt(2), first.arrived(300'000));
  EXPECT_TRUE(early.take(kPeer, attempt(3), second.frame).empty()) << "of another attempt";
  early.on_arriving(kPeer, attempt(2), first.arrived(300'000));
  early.drop(kPeer);
  EXPECT_TRUE(early.take(kPeer, attempt(2), first.frame).empty());
}

TEST(EarlyDecode, BadBytesAndOtherShapesAreLeftToTheWholeFrame) {
  EarlyDecode early(kElements, DType::kF32);
  const Tensor shorter(1, kElements - 1);
  early.on_arriving(kPeer, attempt(0), shorter.arrived(300'000));
  EXPECT_TRUE(early.take(kPeer, attempt(0), shorter.frame).empty());
  Tensor bad(2);
  Buffer bytes = Buffer::copy_of(bad.frame.received_payload());
  bytes.data()[70'000] ^= std::byte{1};
  bad.frame.payload = {SharedBytes(std::move(bytes))};
  for (const std::size_t arrived : {100UL, 300'000UL, 600'000UL})
    early.on_arriving(kPeer, attempt(1), bad.arrived(arrived));
  EXPECT_TRUE(early.take(kPeer, attempt(1), bad.frame).empty());
  EXPECT_EQ(early.taken(), 0U);
}

// A second link under the same name, and a payload of another size under the same attempt: what the
// first one left is not looked at beyond its end.
TEST(EarlyDecode, AnotherPayloadOfTheSameAttemptIsAnotherTensor) {
  const Tensor first(1), longer(2, 2 * kElements), shorter(3, 1000);
  for (const Tensor* other : {&longer, &shorter}) {
    EarlyDecode early(kElements, DType::kF32);
    early.on_arriving(kPeer, attempt(0), first.arrived(600'000));
    const MarkExpected mark("early_decode.another_frame");
    EXPECT_TRUE(early.take(kPeer, attempt(0), other->frame).empty());
  }
  EarlyDecode early(kElements, DType::kF32);
  const Tensor second(4);
  early.on_arriving(kPeer, attempt(0), first.arrived(600'000));
  early.on_arriving(kPeer, attempt(0), second.arrived(1000));
  EXPECT_TRUE(same_bytes(early.take(kPeer, attempt(0), second.frame).view(), second.values.bytes()))
      << "it begins anew";
}

TEST(EarlyDecode, MemoryHasABound) {
  EarlyDecode early(kElements, DType::kF32);
  const Tensor tensor(1);
  for (std::uint32_t peer = 1; peer <= EarlyDecode::kTensorsMax + 3; ++peer)
    early.on_arriving(PeerId{peer}, attempt(0), tensor.arrived(1000));
  for (std::uint32_t peer = 1; peer <= EarlyDecode::kTensorsMax + 3; ++peer)
    EXPECT_EQ(early.take(PeerId{peer}, attempt(0), tensor.frame).empty(),
              peer > EarlyDecode::kTensorsMax);
}

}  // namespace
}  // namespace swarmline
