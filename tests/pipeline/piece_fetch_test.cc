#include "pipeline/stage/common/piece_fetch.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/rng.h"
#include "engine/checkpoint/sha256.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/common/piece_asks.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kPiece = Limits::state_piece_bytes;

Seat holder(std::uint32_t peer) {
  return {PeerId{peer}, StageId{1}, Incarnation{1}};
}

struct Source {
  explicit Source(std::uint64_t size) : bytes(size) {
    Rng rng(size);
    for (std::uint64_t i = 0; i < size; ++i)
      bytes.data()[i] = static_cast<std::byte>(rng.below(256));
    for (std::uint64_t first = 0; first < size; first += kPiece) {
      const std::uint64_t length = std::min<std::uint64_t>(kPiece, size - first);
      hashes.push_back(sha256_hex(BytesView(bytes.bytes()).subspan(first, length)));
    }
  }
  BytesView piece(std::uint32_t number) {
    const std::uint64_t first = number * kPiece;
    return BytesView(bytes.bytes())
        .subspan(first, std::min<std::uint64_t>(kPiece, bytes.size() - first));
  }
  bool give(PieceFetch& fetch, const PieceFetch::Ask& ask) {
    return fetch.on_piece(ask.holder, ask.piece, piece(ask.piece), xxh3(piece(ask.piece)));
  }
  Buffer bytes;
  std::vector<std::string> hashes;
};

// The only piece of holder 1, of another length each time.
void damage_until_it_rests(PieceFetch& fetch) {
  for (std::uint32_t i = 0; i < knobs().damaged_in_a_row; ++i) {
    ASSERT_EQ(fetch.asks().size(), 1U);
    EXPECT_FALSE(fetch.on_piece(holder(1), 0, BytesView(), 0));
  }
}

TEST(PieceFetch, KnowsWhetherItsBeginningIsHere) {
  Source source(3 * kPiece);
  PieceFetch fetch(source.bytes.size(), source.hashes);
  fetch.add_holder(holder(1));
  const std::vector<PieceFetch::Ask> asks = fetch.asks();
  ASSERT_EQ(asks.size(), 2U);
  EXPECT_TRUE(source.give(fetch, asks[1]));
  EXPECT_FALSE(fetch.has_first(1)) << "the second piece alone is here";
  EXPECT_TRUE(source.give(fetch, asks[0]));
  EXPECT_TRUE(fetch.has_first(2 * kPiece));
  EXPECT_FALSE(fetch.has_first(2 * kPiece + 1));
  const BytesView here = fetch.so_far()->bytes().first(2 * kPiece);
  EXPECT_TRUE(std::ranges::equal(here, BytesView(source.bytes.bytes()).first(2 * kPiece)));
}

TEST(PieceFetch, AllHoldersAreAtWorkAtOnce) {
  Source source(7 * kPiece + 5);
  PieceFetch fetch(source.bytes.size(), source.hashes);
  EXPECT_TRUE(fetch.stuck());
  for (std::uint32_t peer = 1; peer <= 3; ++peer) fetch.add_holder(holder(peer));
  std::vector<PieceFetch::Ask> asks = fetch.asks();
  ASSERT_EQ(asks.size(), 3 * PieceFetch::kWindow);
  EXPECT_EQ(asks[0], (PieceFetch::Ask{holder(1), 0}));
  EXPECT_EQ(asks[1], (PieceFetch::Ask{holder(2), 1}));
  EXPECT_TRUE(fetch.asks().empty()) << "each has what it can do";
  while (!asks.empty()) {
    EXPECT_TRUE(source.give(fetch, asks.back()));
    asks.pop_back();
    for (const PieceFetch::Ask& more : fetch.asks()) asks.push_back(more);
  }
  ASSERT_TRUE(fetch.done());
  EXPECT_EQ(fetch.pieces_by_holder().size(), 3U);
  const Buffer got = fetch.take();
  EXPECT_EQ(xxh3(got.bytes()), xxh3(source.bytes.bytes()));
}

TEST(PieceFetch, NoMoreAtOnceThanAllowedAndEachHolderInTurn) {
  Source source(4 * kPiece);
  PieceFetch fetch(source.bytes.size(), source.hashes);
  for (std::uint32_t peer = 1; peer <= 2; ++peer) fetch.add_holder(holder(peer));
  std::vector<Seat> asked;
  while (!fetch.done()) {
    const auto asks = fetch.asks(1);
    ASSERT_EQ(asks.size(), 1U);
    EXPECT_TRUE(fetch.asks(1).empty());
    asked.push_back(asks[0].holder);
    ASSERT_TRUE(source.give(fetch, asks[0]));
  }
  EXPECT_EQ(asked, (std::vector<Seat>{holder(1), holder(2), holder(1), holder(2)}));
}

TEST(PieceFetch, WhatALostHolderWasAskedForIsAskedOfOthers) {
  Source source(4 * kPiece);
  PieceFetch fetch(source.bytes.size(), source.hashes);
  fetch.add_holder(holder(1));
  fetch.add_holder(holder(2));
  const auto asks = fetch.asks();
  ASSERT_EQ(asks.size(), 4U);
  EXPECT_TRUE(source.give(fetch, asks[1]));  // of 2
  fetch.on_lost(holder(1));
  EXPECT_FALSE(source.give(fetch, asks[0])) << "it is not asked any more";
  std::vector<PieceFetch::Ask> again = fetch.asks();
  for (; !again.empty(); again = fetch.asks())
    for (const PieceFetch::Ask& ask : again) {
      EXPECT_EQ(ask.holder, holder(2));
      EXPECT_TRUE(source.give(fetch, ask));
    }
  EXPECT_TRUE(source.give(fetch, asks[3]));
  EXPECT_TRUE(fetch.done());
  fetch.on_lost(holder(2));
  EXPECT_FALSE(fetch.stuck());
}

TEST(PieceFetch, AHolderThatLiesIsAskedNoMore) {
  Source source(2 * kPiece);
  PieceFetch fetch(source.bytes.size(), source.hashes);
  fetch.add_holder(holder(1));
  const auto asks = fetch.asks();
  ASSERT_EQ(asks.size(), 2U);
  // Transport is right, content is another's.
  EXPECT_FALSE(fetch.on_piece(holder(1), 0, source.piece(1), xxh3(source.piece(1))));
  EXPECT_TRUE(fetch.stuck());
  fetch.add_holder(holder(1));
  EXPECT_TRUE(fetch.asks().empty());
  fetch.add_holder(holder(2));
  for (const PieceFetch::Ask& ask : fetch.asks()) EXPECT_TRUE(source.give(fetch, ask));
  EXPECT_TRUE(fetch.done());
}

TEST(PieceFetch, HavingNothingNowCanBeForgiven) {
  Source source(kPiece);
  PieceFetch fetch(source.bytes.size());
  fetch.add_holder(holder(1));
  ASSERT_EQ(fetch.asks().size(), 1U);
  fetch.on_missing(holder(1));
  EXPECT_TRUE(fetch.stuck());
  fetch.forgive();
  fetch.add_holder(holder(1));
  const auto asks = fetch.asks();
  ASSERT_EQ(asks.size(), 1U);
  EXPECT_TRUE(source.give(fetch, asks[0]));
  EXPECT_TRUE(fetch.done());
}

// Its checksum says so: whoever sent it has it whole.
TEST(PieceFetch, ADamagedPieceIsAskedForAgain) {
  Source source(2 * kPiece);
  PieceFetch fetch(source.bytes.size(), source.hashes);
  fetch.add_holder(holder(1));
  std::vector<PieceFetch::Ask> asks = fetch.asks();
  ASSERT_EQ(asks.size(), 2U);
  for (std::uint32_t i = 1; i < knobs().damaged_in_a_row; ++i) {
    EXPECT_FALSE(fetch.on_piece(holder(1), 0, source.piece(1), xxh3(source.piece(0))));
    EXPECT_EQ(fetch.asks(), (std::vector<PieceFetch::Ask>{{holder(1), 0}}));
  }
  EXPECT_TRUE(source.give(fetch, {holder(1), 0})) << "what is whole ends the row";
  EXPECT_FALSE(fetch.on_piece(holder(1), 1, source.piece(0), 0));
  EXPECT_FALSE(fetch.stuck());
  EXPECT_EQ(fetch.asks(), (std::vector<PieceFetch::Ask>{{holder(1), 1}}));
  EXPECT_TRUE(source.give(fetch, {holder(1), 1}));
  EXPECT_TRUE(fetch.done());
}

TEST(PieceFetch, AHolderWhosePiecesAllComeDamagedRestsUntilItIsForgiven) {
  Source source(kPiece);
  PieceFetch fetch(source.bytes.size());
  fetch.add_holder(holder(1));
  damage_until_it_rests(fetch);
  EXPECT_TRUE(fetch.stuck());
  EXPECT_TRUE(fetch.damaged());
  fetch.add_holder(holder(1));
  EXPECT_TRUE(fetch.asks().empty()) << "named again is not forgiven";
  EXPECT_TRUE(fetch.forgive_damaged());
  EXPECT_FALSE(fetch.forgive_damaged());
  const auto asks = fetch.asks();
  ASSERT_EQ(asks.size(), 1U);
  EXPECT_TRUE(source.give(fetch, asks[0]));
  EXPECT_TRUE(fetch.done());
}

TEST(PieceFetch, AHolderThatRestsCanBeLost) {
  Source source(kPiece);
  PieceFetch fetch(source.bytes.size());
  fetch.add_holder(holder(1));
  damage_until_it_rests(fetch);
  fetch.on_lost(holder(1));
  EXPECT_FALSE(fetch.forgive_damaged());
  EXPECT_TRUE(fetch.asks().empty());
}

TEST(PieceFetch, OneThatDoesNotAnswerIsLeftAlone) {
  Source source(5 * kPiece);
  PieceFetch fetch(source.bytes.size(), source.hashes);
  fetch.add_holder(holder(1));
  fetch.add_holder(holder(2));
  const std::vector<PieceFetch::Ask> first = fetch.asks();
  const Instant began{};
  fetch.asked(holder(1), began);
  fetch.asked(holder(2), began + 1s);
  EXPECT_TRUE(fetch.drop_late(began + knobs().piece_time).empty());
  EXPECT_EQ(fetch.drop_late(began + knobs().piece_time + 1ms), std::vector<Seat>{holder(1)});
  EXPECT_TRUE(fetch.late());
  EXPECT_TRUE(fetch.drop_late(began + knobs().piece_time + 2s).empty()) << "twice as long now";
  fetch.add_holder(holder(1));  // named once more, and no sooner for that
  for (const PieceFetch::Ask& ask : first)
    if (ask.holder == holder(2)) EXPECT_TRUE(source.give(fetch, ask));
  for (const PieceFetch::Ask& ask : fetch.asks()) EXPECT_EQ(ask.holder, holder(2));
  for (const PieceFetch::Ask& ask : first)
    if (ask.holder == holder(1) && ask.piece == first[0].piece)
      EXPECT_TRUE(source.give(fetch, ask)) << "what it sends after all is taken";
  EXPECT_FALSE(fetch.late());
  while (!fetch.done()) {
    const std::vector<PieceFetch::Ask> asks = fetch.asks();
    if (asks.empty()) fetch.on_link_lost(holder(2));
    for (const PieceFetch::Ask& ask : asks) source.give(fetch, ask);
  }
  EXPECT_EQ(BytesView(fetch.take().bytes()).size(), source.bytes.size());
}

TEST(PieceFetch, WhereNobodyElseIsLeftThoseThatAreLateAreAskedAgain) {
  Source source(kPiece);
  PieceFetch fetch(source.bytes.size(), source.hashes);
  fetch.add_holder(holder(1));
  ASSERT_EQ(fetch.asks().size(), 1U);
  fetch.asked(holder(1), Instant{});
  EXPECT_EQ(fetch.drop_late(Instant{} + knobs().piece_time + 1ms).size(), 1U);
  EXPECT_TRUE(fetch.stuck());
  EXPECT_FALSE(fetch.damaged());
  EXPECT_TRUE(fetch.forgive_late());
  EXPECT_FALSE(fetch.forgive_late());
  EXPECT_EQ(fetch.asks().size(), 1U);
}

TEST(PieceFetch, ABrokenLinkIsAskedAgain) {
  Source source(kPiece);
  PieceFetch fetch(source.bytes.size());
  fetch.add_holder(holder(1));
  const auto asks = fetch.asks();
  EXPECT_TRUE(fetch.asks().empty());
  fetch.on_link_lost(holder(1));
  EXPECT_EQ(fetch.asks(), asks);
}

TEST(PieceFetch, AHolderOutOfReachIsLeftAloneUntilNobodyElseIsLeft) {
  Source source(3 * kPiece);
  PieceFetch fetch(source.bytes.size(), source.hashes);
  fetch.add_holder(holder(1));
  const auto asks = fetch.asks();
  ASSERT_EQ(asks.size(), 2U);
  fetch.on_link_lost(holder(1));
  ASSERT_EQ(fetch.asks(), asks);
  EXPECT_TRUE(source.give(fetch, asks[0])) << "it was reached";
  fetch.on_link_lost(holder(1));
  ASSERT_EQ(fetch.asks().size(), 2U);
  const MarkExpected out_of_reach("piece_fetch.holder_out_of_reach");
  fetch.on_link_lost(holder(1));
  EXPECT_TRUE(fetch.asks().empty());
  EXPECT_TRUE(fetch.stuck());
  for (int tries = 0; tries < 2; ++tries) {
    EXPECT_TRUE(fetch.forgive_late());
    EXPECT_EQ(fetch.asks().size(), 2U);
    fetch.on_link_lost(holder(1));
    EXPECT_TRUE(fetch.stuck()) << "a try a pause";
  }
  fetch.add_holder(holder(2));
  fetch.on_link_lost(holder(2));
  for (const PieceFetch::Ask& ask : fetch.asks()) {
    EXPECT_EQ(ask.holder, holder(2));
    EXPECT_TRUE(source.give(fetch, ask));
  }
  EXPECT_TRUE(fetch.done());
}

TEST(PieceFetch, ALinkOverWhichNothingWasAskedSaysNothing) {
  Source source(kPiece);
  PieceFetch fetch(source.bytes.size());
  fetch.add_holder(holder(1));
  for (int times = 0; times < 3; ++times) fetch.on_link_lost(holder(1));
  EXPECT_EQ(fetch.asks().size(), 1U);
}

// ---- Whom to ask --------------------------------------------------------------------------------

TEST(PieceAsks, WhatOneSendsWronglyOthersAreAskedFor) {
  const Seat liar{PeerId{1}, StageId{0}, Incarnation{1}},
      other{PeerId{2}, StageId{0}, Incarnation{1}};
  PieceAsks asks(3);
  asks.want(0);
  asks.add_holder(liar);
  ASSERT_EQ(asks.asks(), (std::vector<PieceAsks::Ask>{{liar, 0}}));
  ASSERT_TRUE(asks.takes(liar, 0));
  asks.add_holder(other);
  asks.wrong(liar, 0);
  ASSERT_EQ(asks.asks(), (std::vector<PieceAsks::Ask>{{other, 0}}));
  asks.want(1);
  ASSERT_EQ(asks.asks(), (std::vector<PieceAsks::Ask>{{liar, 1}})) << "it may have that one";
  asks.here(other, 0);
  EXPECT_FALSE(asks.is_refused(liar));
  for (const std::uint32_t piece : {1U, 2U}) asks.wrong(liar, piece);
  EXPECT_TRUE(asks.is_refused(liar));
}

}  // namespace
}  // namespace swarmline
