// Two members of a round, driven by hand, and what a round is refused for.

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "engine/collective/butterfly.h"
#include "tests/collective/chunk_bag.h"

namespace swarmline {
namespace {

constexpr CodecSpec kNone{};
constexpr CodecSpec kBf16{.kind = CodecKind::kBf16};

// Two members driven by hand: 0 reduces the first half, 1 the second, 40 chunks of 256 floats each.
class TwoMembers : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kElements = 80 * 256;

  TwoMembers() {
    Rng rng(9);
    for (std::uint32_t r = 0; r < 2; ++r) {
      inputs_.push_back(random_values(kElements, DType::kF32, rng));
      outputs_.emplace_back(kElements * sizeof(float));
      members_.push_back(
          std::make_unique<ButterflyAllReduce>(spec(r), inputs_[r].bytes(), outputs_[r].bytes()));
    }
  }

  static ButterflySpec spec(std::uint32_t rank) {
    return {.rank = rank,
            .ranks = 2,
            .elements = kElements,
            .bounds = {0, kElements / 2, kElements},
            .scatter = {kNone, kNone},
            .gather = kBf16,
            .chunk_bytes = 1024};
  }
  std::vector<ChunkSend> start(std::uint32_t rank) {
    std::vector<ChunkSend> sends;
    while (members_[rank]->send_more([&](ChunkSend send) { sends.push_back(std::move(send)); })) {
    }
    return sends;
  }
  static Buffer wire_of(const CodecSpec& codec, std::size_t elements, DType dtype = DType::kF32) {
    const Buffer values = Buffer::zeroed(elements * size_bytes(dtype));
    return encode(codec, values.bytes(), dtype);
  }
  void expect_error(ErrorCode code, std::uint32_t from, ReducePart part, std::uint32_t chunk,
                    BytesView bytes) {
    const SharedBytes wire(Buffer::copy_of(bytes));
    const auto before = members_[0]->progress();
    const auto sends = members_[0]->on_chunk(from, part, chunk, wire);
    ASSERT_FALSE(sends);
    EXPECT_EQ(sends.error().code, code) << sends.error().what;
    EXPECT_EQ(members_[0]->progress().bytes_received, before.bytes_received);
    EXPECT_EQ(members_[0]->progress().chunks_done, before.chunks_done);
  }

  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
  std::vector<Buffer> residuals_, next_residuals_;
  std::vector<std::unique_ptr<ButterflyAllReduce>> members_;
};

TEST_F(TwoMembers, ASenderStaysAWindowAheadOfTheReturnedSums) {
  constexpr std::uint32_t kWindow = ButterflyAllReduce::window_chunks(2);
  const auto first = start(0);
  ASSERT_EQ(first.size(), kWindow);
  auto back = start(1);
  ASSERT_EQ(back.size(), kWindow);
  // One part arrives at 1, one sum comes back, one more part goes out.
  const auto sums = members_[1]->on_chunk(0, first[0].part, first[0].chunk, first[0].whole());
  ASSERT_TRUE(sums);
  ASSERT_EQ(sums->size(), 1U);
  EXPECT_EQ(sums->at(0).part, ReducePart::kGather);
  const auto more = members_[0]->on_chunk(1, ReducePart::kGather, 0, sums->at(0).whole());
  ASSERT_TRUE(more);
  ASSERT_EQ(more->size(), 1U);
  EXPECT_EQ(more->at(0).part, ReducePart::kScatter);
  EXPECT_EQ(more->at(0).chunk, kWindow);
}

TEST_F(TwoMembers, WhatDoesNotFitTheRoundIsRefused) {
  auto sends = start(1);
  start(0);
  const SharedBytes whole = sends[0].whole();
  const BytesView good = whole.view();
  ASSERT_EQ(sends[0].chunk, 0U);
  expect_error(ErrorCode::kCorrupt, 0, ReducePart::kScatter, 0, good);   // from oneself
  expect_error(ErrorCode::kCorrupt, 2, ReducePart::kScatter, 0, good);   // no such member
  expect_error(ErrorCode::kCorrupt, 1, ReducePart::kScatter, 40, good);  // no such chunk
  expect_error(ErrorCode::kCorrupt, 1, ReducePart::kScatter, ButterflyAllReduce::window_chunks(2),
               good);  // beyond the window
  expect_error(ErrorCode::kCorrupt, 1, ReducePart::kGather, 35, wire_of(kBf16, 256).bytes());
  expect_error(ErrorCode::kIncompatible, 1, ReducePart::kScatter, 0, wire_of(kNone, 255).bytes());
  expect_error(ErrorCode::kIncompatible, 1, ReducePart::kScatter, 0,
               wire_of(kNone, 256, DType::kF64).bytes());
  expect_error(ErrorCode::kIncompatible, 1, ReducePart::kGather, 0, wire_of(kNone, 256).bytes());
  expect_error(ErrorCode::kCorrupt, 1, ReducePart::kScatter, 0, good.first(good.size() - 1));
  expect_error(ErrorCode::kCorrupt, 1, ReducePart::kScatter, 0, {});
}

// Whether a sum has checksums is its sender's choice; what it says is the round's.
TEST_F(TwoMembers, ASumWithoutChecksumsIsTaken) {
  CodecSpec bare = kBf16;
  bare.checksums = false;
  for (std::uint32_t r = 0; r < 2; ++r) start(r);
  EXPECT_TRUE(members_[0]->on_chunk(1, ReducePart::kGather, 0, SharedBytes(wire_of(bare, 256))));
  bare.kind = CodecKind::kFp16;
  expect_error(ErrorCode::kIncompatible, 1, ReducePart::kGather, 1, wire_of(bare, 256).bytes());
}

TEST_F(TwoMembers, ACorruptChunkChangesNothingAndTheGoodOneIsTaken) {
  std::vector<std::pair<std::uint32_t, ChunkSend>> bag;
  const auto post = [&](std::uint32_t from, std::vector<ChunkSend> sends) {
    for (ChunkSend& send : sends) bag.emplace_back(from, std::move(send));
  };
  for (std::uint32_t r = 0; r < 2; ++r) post(r, start(r));
  Rng rng(4);
  while (!bag.empty()) {
    const auto [from, send] = bag.back();
    bag.pop_back();
    ButterflyAllReduce& to = *members_[send.to];
    Buffer spoiled = Buffer::copy_of(send.whole().view());
    spoiled.data()[rng.below(spoiled.size())] ^= std::byte{1};
    const auto refused = to.on_chunk(from, send.part, send.chunk, SharedBytes(std::move(spoiled)));
    ASSERT_FALSE(refused);
    ASSERT_EQ(refused.error().code, ErrorCode::kCorrupt);
    auto taken = to.on_chunk(from, send.part, send.chunk, send.whole());
    ASSERT_TRUE(taken) << taken.error().what;
    post(send.to, std::move(*taken));
  }
  EXPECT_TRUE(members_[0]->done());
  EXPECT_TRUE(same_bytes(outputs_[0].bytes(), outputs_[1].bytes()));
  for (std::size_t i = 0; i < kElements; ++i) {
    const float sum = inputs_[0].as<float>()[i] + inputs_[1].as<float>()[i];
    ASSERT_NEAR(outputs_[0].as<float>()[i], sum, 0.01);
  }
}

TEST(ButterflySpecTest, SpecsThatDoNotFitAreNamed) {
  Buffer in = Buffer::zeroed(40);
  Buffer out = Buffer::zeroed(40);
  const ButterflySpec good{
      .rank = 1, .ranks = 2, .elements = 10, .bounds = {0, 4, 10}, .scatter = {kNone, kNone}};
  EXPECT_TRUE(ButterflyAllReduce::check_spec(good, in.bytes(), out.bytes()));
  std::vector<ButterflySpec> bad(8, good);
  bad[0].rank = 2;
  bad[1].bounds = {0, 10};
  bad[2].bounds = {0, 11, 10};
  bad[3].bounds = {0, 4, 9};
  bad[4].scatter.pop_back();
  bad[5].elements = 11;
  bad[6].chunk_bytes = 3;
  bad[7].dtype = DType::kI8;
  for (const ButterflySpec& spec : bad) {
    const auto checked = ButterflyAllReduce::check_spec(spec, in.bytes(), out.bytes());
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, ErrorCode::kIncompatible);
  }
  EXPECT_FALSE(ButterflyAllReduce::check_spec(good, in.bytes(), in.bytes())) << "in place";
}

}  // namespace
}  // namespace swarmline
