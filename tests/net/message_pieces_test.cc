#include "engine/net/message_pieces.h"

#include <gtest/gtest.h>

#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

constexpr FrameRoom kRoom{.meta_bytes_max = 10 * kMiB, .payload_bytes_max = 1 * kMiB};

std::string counted(std::size_t size) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 / 7);
  return text;
}

Frame message_of(std::size_t bytes) {
  return {.kind = 24,
          .request = 7,
          .flags = kFrameFlagReply,
          .meta = counted(bytes),
          .payload = {SharedBytes(Buffer::zeroed(100))}};
}

Frame piece_of(std::uint16_t kind, std::size_t bytes, std::uint32_t flags = kFrameFlagMore) {
  return {.kind = kind, .flags = flags, .meta = std::string(bytes, 'p'), .payload = {}};
}

ErrorCode refused(PieceJoiner& joiner, Frame frame) {
  const auto taken = joiner.take(std::move(frame), kRoom);
  return taken ? ErrorCode::kStopped : taken.error().code;
}

TEST(MessagePieces, WhatIsCutIsJoined) {
  const MarkExpected cut("message_pieces.cut");
  for (const std::uint64_t bytes : {kPieceBytes + 1, 2 * kPieceBytes, 9 * kMiB + 5}) {
    const Frame message = message_of(bytes);
    ASSERT_TRUE(travels_in_pieces(message));
    std::vector<Frame> pieces = cut_into_pieces(message);
    std::uint64_t wire_bytes = 0;
    PieceJoiner joiner;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      wire_bytes += pieces[i].wire_bytes();
      const bool last = i + 1 == pieces.size();
      EXPECT_LE(pieces[i].meta.size(), kFrameMetaBytesTaken);
      auto joined = joiner.take(std::move(pieces[i]), kRoom);
      ASSERT_TRUE(joined.has_value()) << joined.error().what;
      ASSERT_EQ(joined->has_value(), last);
      EXPECT_EQ(joiner.has_begun(), !last);
      if (!last) continue;
      const Frame& got = **joined;
      EXPECT_EQ(got.meta, message.meta);
      EXPECT_EQ(got.kind, message.kind);
      EXPECT_EQ(got.request, message.request);
      EXPECT_EQ(got.flags, message.flags);
      EXPECT_EQ(got.payload_bytes(), 100U);
    }
    EXPECT_EQ(wire_bytes, wire_bytes_in_pieces(message));
    EXPECT_EQ(joiner.held_bytes(), 0U);
  }
}

TEST(MessagePieces, AShortMessageIsOneFrame) {
  EXPECT_FALSE(travels_in_pieces(message_of(kPieceBytes)));
  EXPECT_EQ(wire_bytes_in_pieces(message_of(10)), message_of(10).wire_bytes());
}

TEST(MessagePieces, WholeFramesOfOtherKindsGoBetween) {
  PieceJoiner joiner;
  ASSERT_TRUE(joiner.take(piece_of(24, 100'000), kRoom).has_value());
  const auto between = joiner.take({.kind = 13, .meta = "beat"}, kRoom);
  ASSERT_TRUE(between.has_value() && between->has_value());
  EXPECT_EQ((*between)->meta, "beat");
  EXPECT_EQ(joiner.held_bytes(), 100'000U);
  const auto whole = joiner.take(piece_of(24, 1, 0), kRoom);
  ASSERT_TRUE(whole.has_value() && whole->has_value());
  EXPECT_EQ((*whole)->meta.size(), 100'001U);
}

TEST(MessagePieces, APieceOfAnotherMessageWithinOneIsCorrupt) {
  for (const Frame& other :
       {piece_of(25, 100'000), piece_of(24, 100'000, kFrameFlagMore | kFrameFlagReply)}) {
    PieceJoiner joiner;
    ASSERT_TRUE(joiner.take(piece_of(24, 100'000), kRoom).has_value());
    EXPECT_EQ(refused(joiner, other), ErrorCode::kCorrupt);
  }
}

// Each costs its receiver more than its bytes.
TEST(MessagePieces, TinyPiecesAreCorrupt) {
  PieceJoiner joiner;
  EXPECT_EQ(refused(joiner, piece_of(24, kPieceBytesMin - 1)), ErrorCode::kCorrupt);
  Frame early = piece_of(24, 100'000);
  early.payload = {SharedBytes(Buffer::zeroed(1))};
  EXPECT_EQ(refused(joiner, early), ErrorCode::kCorrupt) << "a payload before the last piece";
}

TEST(MessagePieces, AMessageBeyondTheRoomForItsKindIsCorrupt) {
  const MarkExpected no_room("message_pieces.no_room");
  PieceJoiner joiner;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(joiner.take(piece_of(24, kMiB), kRoom).has_value());
  EXPECT_EQ(joiner.held_bytes(), 10 * kMiB);
  EXPECT_EQ(refused(joiner, piece_of(24, 1, 0)), ErrorCode::kCorrupt) << "the last one, too";
}

}  // namespace
}  // namespace swarmline
