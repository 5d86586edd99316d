#include "engine/data/data_pieces.h"

#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "engine/checkpoint/sha256.h"
#include "engine/data/piece_cache.h"
#include "engine/store/parallel.h"
#include "tests/harness/mark_expected.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

DataManifest manifest_with(std::vector<std::uint64_t> used) {
  DataManifest manifest;
  for (const std::uint64_t bytes : used) {
    DataFile& file = manifest.files.emplace_back();
    file.name = "file-" + std::to_string(manifest.files.size());
    file.bytes = file.used = bytes;
  }
  return manifest;
}

// ---- Numbers ------------------------------------------------------------------------------------

TEST(DataPieces, AreNumberedThroughAllFiles) {
  const DataPieces pieces(manifest_with({2 * kDataPieceBytes, 0, kDataPieceBytes + 5, 3}));
  ASSERT_EQ(pieces.count(), 5U);
  EXPECT_EQ(pieces.place(1).file, 0U);
  EXPECT_EQ(pieces.place(2).file, 2U) << "an empty file has none";
  EXPECT_EQ(pieces.place(3).offset, kDataPieceBytes);
  EXPECT_EQ(pieces.place(3).bytes, 5U);
  EXPECT_EQ(pieces.place(4).bytes, 3U);
  EXPECT_EQ(pieces.at(2, kDataPieceBytes), 3U);
  std::vector<std::uint32_t> listed;
  pieces.list({.file = 0, .offset = kDataPieceBytes - 1, .bytes = 2}, listed);
  pieces.list({.file = 3, .offset = 0, .bytes = 3}, listed);
  pieces.list({.file = 3, .offset = 0, .bytes = 0}, listed);
  EXPECT_EQ(listed, (std::vector<std::uint32_t>{0, 1, 4}));
}

TEST(DataPieces, TooManyAreNone) {
  const std::uint64_t most = kDataPieceBytes * kDataPiecesMax;
  EXPECT_FALSE(DataPieces(manifest_with({most})).too_many());
  const DataPieces more(manifest_with({most, 1}));
  EXPECT_TRUE(more.too_many());
  EXPECT_EQ(more.count(), 0U);
}

// ---- A dataset without files --------------------------------------------------------------------

// The same stream, once from files and once by ranges of their bytes.
TEST(FetchedDataset, IsReadAsItsFilesAre) {
  const TempFolder temp;
  std::string header(1024, '\0');  // llm.c's
  const std::int32_t words[] = {20240520, 1, 700};
  std::memcpy(header.data(), words, sizeof words);
  std::string tokens;
  for (int i = 0; i < 700; ++i) tokens += {static_cast<char>(i % 251), static_cast<char>(i / 251)};
  temp.write("a.bin", header + tokens);
  temp.write("b.bin", tokens.substr(0, 602));
  DatasetOptions options{.sequence = 7, .seed = 5, .vocab = 1024};
  options.data.kind = DataKind::kTokens;
  options.data.files = {temp.at("*.bin")};
  options.data.bytes_max = 1900;
  const auto whole = TokenDataset::open(options);
  ASSERT_TRUE(whole) << whole.error().what;
  const auto manifest = manifest_of(*whole, FileHashes(""));
  ASSERT_TRUE(manifest && check_manifest(*manifest));

  std::map<std::uint32_t, std::string> bytes;
  for (const DataFile& file : manifest->files) {
    bytes[static_cast<std::uint32_t>(options.fetched.files.size())] = slurp(temp.at(file.name));
    options.fetched.files.push_back({.name = file.name,
                                     .used = file.used,
                                     .header_bytes = file.header_bytes,
                                     .token_bytes = file.token_bytes});
  }
  std::vector<ByteRange> read;
  options.fetched.read = [&](const ByteRange& range, std::span<std::byte> out) -> Result<void> {
    read.push_back(range);
    std::memcpy(out.data(), bytes.at(range.file).data() + range.offset, out.size());
    return {};
  };
  const auto fetched = TokenDataset::open(options);
  ASSERT_TRUE(fetched) << fetched.error().what;
  ASSERT_EQ(fetched->sequences(), whole->sequences());
  ASSERT_EQ(fetched->tokens(), whole->tokens());
  std::vector<std::int32_t> tokens1(7), targets1(7), tokens2(7), targets2(7);
  for (std::uint64_t number = 0; number < whole->sequences(); ++number) {
    EXPECT_EQ(whole->train(number % whole->train_sequences()),
              fetched->train(number % whole->train_sequences()));
    read.clear();
    ASSERT_TRUE(whole->read(number, tokens1, targets1));
    ASSERT_TRUE(fetched->read(number, tokens2, targets2));
    EXPECT_EQ(tokens1, tokens2);
    EXPECT_EQ(targets1, targets2);
    std::uint64_t said = 0, used = 0;
    for (const ByteRange& range : fetched->ranges(number)) said += range.bytes;
    for (const ByteRange& range : read) used += range.bytes;
    EXPECT_EQ(said, used) << "no more than it says";
  }
}

TEST(FetchedDataset, TheEndOfADocumentTakesNoByte) {
  DatasetOptions options{.sequence = 2, .seed = 5, .vocab = kByteVocab};
  options.data.held_out = 0;
  options.fetched.files = {{.name = "a", .used = 3}, {.name = "b", .used = 2}};
  options.fetched.read = [](const ByteRange& range, std::span<std::byte> out) -> Result<void> {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<std::byte>(10 * (range.file + 1) + range.offset + i);
    return {};
  };
  const auto dataset = TokenDataset::open(options);
  ASSERT_TRUE(dataset) << dataset.error().what;
  std::vector<std::int32_t> tokens(2), targets(2);
  ASSERT_TRUE(dataset->read(1, tokens, targets));
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{12, kEndOfDocument}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{kEndOfDocument, 20}));
  EXPECT_EQ(dataset->ranges(1), (std::vector<ByteRange>{{0, 2, 1}, {1, 0, 1}}));
}

// ---- On disk ------------------------------------------------------------------------------------

struct Piece {
  explicit Piece(char letter, std::size_t bytes = 100) : text(bytes, letter) {}
  BytesView bytes() const { return as_bytes(text); }
  std::string name() const { return sha256_hex(bytes()); }
  std::string text;
};

TEST(PieceCache, GivesBackWhatWasPutAndNothingElse) {
  const TempFolder temp;
  PieceCache cache(temp.at("pieces"), 1000);
  ASSERT_TRUE(cache.open());
  const Piece a('a'), b('b');
  const auto none = cache.find(a.name());
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, nullptr);
  const auto put = cache.put(a.name(), a.bytes());
  ASSERT_TRUE(put && *put);
  EXPECT_TRUE(same_bytes((*put)->bytes(), a.bytes()));
  const auto wrong = cache.put(b.name(), a.bytes());
  ASSERT_TRUE(wrong);
  EXPECT_EQ(*wrong, nullptr) << "of another hash";
  EXPECT_EQ(cache.pieces(), 1U);
}

TEST(PieceCache, WhatWasNotUsedForLongestGoesFirst) {
  const TempFolder temp;
  PieceCache cache(temp.at("pieces"), 300);
  ASSERT_TRUE(cache.open());
  const Piece a('a'), b('b'), c('c'), d('d');
  for (const Piece* piece : {&a, &b, &c}) ASSERT_TRUE(cache.put(piece->name(), piece->bytes()));
  const auto used = cache.find(a.name());
  ASSERT_TRUE(used && *used);
  const MarkExpected evicted("piece_cache.evicted");
  ASSERT_TRUE(cache.put(d.name(), d.bytes()));
  EXPECT_EQ(cache.bytes(), 300U);
  EXPECT_EQ(*cache.find(b.name()), nullptr);
  for (const Piece* piece : {&a, &c, &d}) EXPECT_NE(*cache.find(piece->name()), nullptr);
  EXPECT_EQ(list_folder(temp.at("pieces"))->size(), 3U);
}

TEST(PieceCache, WhoHasAPieceKeepsItWhenItsFileGoes) {
  const TempFolder temp;
  PieceCache cache(temp.at("pieces"), 100);
  ASSERT_TRUE(cache.open());
  const Piece a('a'), b('b');
  const auto kept = cache.put(a.name(), a.bytes());
  ASSERT_TRUE(kept && *kept && cache.put(b.name(), b.bytes()));
  EXPECT_EQ(cache.pieces(), 1U);
  EXPECT_TRUE(same_bytes((*kept)->bytes(), a.bytes()));
}

// As peers of one machine do that fetch the same.
TEST(PieceCache, SeveralMayKeepTheSamePieceAtOnce) {
  const TempFolder temp;
  constexpr std::size_t kAtOnce = 4;
  const auto kept = for_each_at_once(kAtOnce, kAtOnce, [&](std::size_t) -> Result<void> {
    PieceCache cache(temp.at("pieces"), kMiB);
    SWARMLINE_TRY(cache.open());
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      const Piece piece(letter);
      const auto put = cache.put(piece.name(), piece.bytes());
      if (!put) return std::unexpected(put.error());
    }
    return {};
  });
  EXPECT_TRUE(kept) << kept.error().what;
  EXPECT_EQ(list_folder(temp.at("pieces"))->size(), 26U) << "and nothing beside them";
}

TEST(PieceCache, TheNextProcessFindsThemAndChecksThem) {
  const TempFolder temp;
  const Piece a('a'), b('b'), c('c');
  {
    PieceCache first(temp.at("pieces"), 1000);
    ASSERT_TRUE(first.open());
    for (const Piece* piece : {&a, &b, &c}) ASSERT_TRUE(first.put(piece->name(), piece->bytes()));
  }
  temp.write("pieces/" + b.name(), std::string(100, 'x'));
  temp.write("pieces/notes.txt", "not a piece");
  temp.write("pieces/" + a.name() + ".7-ab.partial", std::string(5, 'a'));  // of one that died
  PieceCache next(temp.at("pieces"), 1000);
  ASSERT_TRUE(next.open());
  EXPECT_EQ(next.pieces(), 4U);
  EXPECT_EQ(next.bytes(), 305U) << "what was left half-written counts, and goes in its turn";
  const MarkExpected damaged("piece_cache.damaged");
  EXPECT_NE(*next.find(a.name()), nullptr);
  EXPECT_EQ(*next.find(b.name()), nullptr) << "it is not what its name says";
  EXPECT_FALSE(file_exists(temp.at("pieces/" + b.name())));
  EXPECT_TRUE(file_exists(temp.at("pieces/notes.txt"))) << "others' files stay";
  PieceCache smaller(temp.at("pieces"), 100);
  ASSERT_TRUE(smaller.open());
  EXPECT_EQ(smaller.pieces(), 1U);
}

}  // namespace
}  // namespace swarmline
