// Members of an island, driven by hand, and what islands are refused for.
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "engine/collective/island.h"
#include "tests/collective/chunk_bag.h"

namespace swarmline {
namespace {

constexpr CodecSpec kNone{};
constexpr CodecSpec kBf16{.kind = CodecKind::kBf16};

// Ranks 0 and 1 are an island, 2 is alone: 80 chunks of 256 floats, all reduced by rank 2.
class ThreeMembers : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kElements = 80 * 256;

  ThreeMembers() {
    Rng rng(9);
    for (std::uint32_t r = 0; r < 3; ++r) {
      inputs_.push_back(random_values(kElements, DType::kF32, rng));
      outputs_.emplace_back(inputs_[r].size());
      members_.push_back(make_island_all_reduce({.rank = r, .speakers = {0, 0, 2}}, spec(r / 2),
                                                inputs_[r].bytes(), outputs_[r].bytes()));
    }
  }
  static ButterflySpec spec(std::uint32_t rank) {
    return {.rank = rank,
            .ranks = 2,
            .elements = kElements,
            .bounds = {0, 0, kElements},
            .scatter = {kBf16, kBf16},
            .gather = kBf16,
            .chunk_bytes = 1024};
  }
  std::vector<ChunkSend> start(std::uint32_t rank) {
    std::vector<ChunkSend> sends;
    while (members_[rank]->send_more([&](ChunkSend send) { sends.push_back(std::move(send)); })) {
    }
    return sends;
  }
  static SharedBytes wire_of(const CodecSpec& codec, std::size_t elements,
                             DType dtype = DType::kF32) {
    const Buffer values = Buffer::zeroed(elements * size_bytes(dtype));
    return SharedBytes(encode(codec, values.bytes(), dtype));
  }
  void expect_error(std::uint32_t at, ErrorCode code, std::uint32_t from, ReducePart part,
                    std::uint32_t chunk, const SharedBytes& wire) {
    const auto before = members_[at]->progress();
    const auto sends = members_[at]->on_chunk(from, part, chunk, wire);
    ASSERT_FALSE(sends) << from << ", chunk " << chunk;
    EXPECT_EQ(sends.error().code, code) << sends.error().what;
    EXPECT_EQ(members_[at]->progress().bytes_received, before.bytes_received);
    EXPECT_FALSE(members_[at]->has_taken(from, part, chunk));
  }

  std::vector<Buffer> inputs_, outputs_;
  std::vector<std::unique_ptr<AllReduce>> members_;
};

TEST_F(ThreeMembers, AMemberStaysAWindowAheadOfTheReturnedSums) {
  EXPECT_TRUE(start(0).empty()) << "nothing of the island's sum is there";
  start(2);
  const auto first = start(1);
  ASSERT_EQ(first.size(), kIslandFirstChunks);
  const auto scattered =
      members_[0]->on_chunk(1, ReducePart::kScatter, first[0].chunk, first[0].whole());
  ASSERT_TRUE(scattered);
  ASSERT_EQ(scattered->size(), 1U);
  EXPECT_EQ(scattered->at(0).to, 2U);
  const auto sums = members_[2]->on_chunk(0, ReducePart::kScatter, 0, scattered->at(0).whole());
  ASSERT_TRUE(sums);
  ASSERT_EQ(sums->size(), 1U);
  const auto back = members_[0]->on_chunk(2, ReducePart::kGather, 0, sums->at(0).whole());
  ASSERT_TRUE(back);
  ASSERT_EQ(back->size(), 1U);
  EXPECT_EQ(back->at(0).to, 1U);
  EXPECT_TRUE(same_bytes(back->at(0).whole().view(), sums->at(0).whole().view()))
      << "a sum is encoded once";
  const auto more = members_[1]->on_chunk(0, ReducePart::kGather, 0, back->at(0).whole());
  ASSERT_TRUE(more);
  EXPECT_EQ(more->size(), 2U) << "a speaker that answers has begun: the window grows";
}

TEST_F(ThreeMembers, WhatDoesNotFitTheRoundIsRefused) {
  const auto sends = start(1);
  start(2);
  const SharedBytes good = sends[0].whole();
  using enum ReducePart;
  // At the speaker.
  expect_error(0, ErrorCode::kCorrupt, 0, kScatter, 0, good);   // from itself
  expect_error(0, ErrorCode::kCorrupt, 3, kScatter, 0, good);   // no such member
  expect_error(0, ErrorCode::kCorrupt, 1, kScatter, 80, good);  // no such chunk
  expect_error(0, ErrorCode::kCorrupt, 1, kGather, 0, good);    // a sum, from its island
  expect_error(0, ErrorCode::kCorrupt, 2, kGather, 0, wire_of(kBf16, 256));  // before its part
  expect_error(0, ErrorCode::kIncompatible, 1, kScatter, 0, wire_of(kNone, 255));
  expect_error(0, ErrorCode::kIncompatible, 1, kScatter, 0, wire_of(kBf16, 256));
  expect_error(0, ErrorCode::kIncompatible, 1, kScatter, 0, wire_of(kNone, 256, DType::kF64));
  expect_error(0, ErrorCode::kCorrupt, 1, kScatter, 0, SharedBytes());
  // At who is spoken for.
  expect_error(1, ErrorCode::kCorrupt, 2, kGather, 0, wire_of(kBf16, 256));  // not its speaker
  expect_error(1, ErrorCode::kCorrupt, 0, kScatter, 0, good);
  expect_error(1, ErrorCode::kCorrupt, 0, kGather, 79, wire_of(kBf16, 256));  // not sent yet
  expect_error(1, ErrorCode::kIncompatible, 0, kGather, 0, wire_of(kNone, 256));
  expect_error(1, ErrorCode::kIncompatible, 0, kGather, 0, wire_of(kBf16, 255));
  // At another speaker.
  expect_error(2, ErrorCode::kCorrupt, 1, kScatter, 0, good);  // that is spoken for
  EXPECT_TRUE(members_[0]->on_chunk(1, kScatter, 0, good)) << "nothing has changed";
}

TEST_F(ThreeMembers, AMemberThatRunsAheadIsRefused) {
  for (std::uint32_t chunk = 0; chunk < kIslandWindowChunks; ++chunk)
    ASSERT_TRUE(members_[0]->on_chunk(1, ReducePart::kScatter, chunk, wire_of(kNone, 256)));
  expect_error(0, ErrorCode::kCorrupt, 1, ReducePart::kScatter, kIslandWindowChunks,
               wire_of(kNone, 256));
}

TEST_F(ThreeMembers, EachFlippedBitIsFound) {
  Rng rng(4);
  for (const ChunkSend& send : start(1)) {
    Buffer spoiled = Buffer::copy_of(send.whole().view());
    spoiled.data()[rng.below(spoiled.size())] ^= std::byte{1};
    expect_error(0, ErrorCode::kCorrupt, 1, send.part, send.chunk, SharedBytes(std::move(spoiled)));
    ASSERT_TRUE(members_[0]->on_chunk(1, send.part, send.chunk, send.whole()));
  }
}

TEST(IslandSpecTest, IslandsThatDoNotFitAreNamed) {
  const Buffer in = Buffer::zeroed(40);
  Buffer out = Buffer::zeroed(40);
  const ButterflySpec two{
      .rank = 0, .ranks = 2, .elements = 10, .bounds = {0, 4, 10}, .scatter = {kNone, kNone}};
  const auto fits = [&](const IslandRanks& ranks, const ButterflySpec& between) {
    const auto checked = check_islands(ranks, between, in.bytes(), out.bytes());
    if (!checked) EXPECT_EQ(checked.error().code, ErrorCode::kIncompatible);
    return checked.has_value();
  };
  EXPECT_TRUE(fits({.rank = 1, .speakers = {0, 0, 2}}, two));
  EXPECT_FALSE(fits({.rank = 2, .speakers = {0, 0, 2}}, two)) << "it is the other one";
  EXPECT_FALSE(fits({.rank = 3, .speakers = {0, 0, 2}}, two));
  EXPECT_FALSE(fits({.rank = 0, .speakers = {}}, two));
  EXPECT_FALSE(fits({.rank = 0, .speakers = {0, 1, 2}}, two)) << "three speak";
  EXPECT_FALSE(fits({.rank = 0, .speakers = {1, 1, 2}}, two)) << "a higher rank speaks";
  EXPECT_FALSE(fits({.rank = 0, .speakers = {0, 0, 1}}, two)) << "who does not speak for itself";
  EXPECT_FALSE(fits({.rank = 0, .speakers = {0, 4'000'000'000U, 2}}, two));
  std::vector<std::uint32_t> crowd(kIslandMembersMax, 0);
  crowd.push_back(kIslandMembersMax);
  EXPECT_TRUE(fits({.rank = 0, .speakers = crowd}, two));
  crowd.push_back(0);
  EXPECT_FALSE(fits({.rank = 0, .speakers = crowd}, two));
  ButterflySpec one = two;
  one.ranks = 1;
  one.bounds = {0, 10};
  one.scatter = {kNone};
  EXPECT_FALSE(fits({.rank = 0, .speakers = {0, 0, 0}}, one)) << "one host is no islands";
}

}  // namespace
}  // namespace swarmline
