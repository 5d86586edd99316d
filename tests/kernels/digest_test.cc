// The digest is what its definition says, and the kernels' bodies make it: of every length around
// those where something begins.
#include "kernels/digest.h"

#include <algorithm>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/hash.h"
#include "tests/kernels/emulated_digest.h"
#include "tests/kernels/samples.h"

namespace swarmline::kernels {
namespace {

using cuda::HashPieces;
using cuda::kTeamThreads;
using cuda::kTeamWarp;
using cuda::Team;
using testing::emulate;
using testing::emulated_digest;

constexpr std::uint64_t kBlock = xxh3::kBlockBytes;

// 64-byte aligned.
Buffer noise(std::uint64_t bytes) {
  Buffer made(bytes);
  Rng rng(bytes);
  for (std::byte& byte : made.bytes()) byte = static_cast<std::byte>(rng.next_u64() >> 56);
  return made;
}

std::vector<std::uint64_t> around(std::initializer_list<std::uint64_t> lengths) {
  std::vector<std::uint64_t> all = {0};
  for (const std::uint64_t length : lengths)
    for (const std::uint64_t bytes : {length - 1, length, length + 1}) all.push_back(bytes);
  return all;
}

std::uint64_t xxh3_of_padded(BytesView bytes) {
  std::vector<std::byte> padded(bytes.begin(), bytes.end());
  padded.resize(std::max<std::size_t>(2 * kBlock, (bytes.size() + kBlock - 1) / kBlock * kBlock));
  return swarmline::xxh3(padded);
}

std::uint64_t by_definition(BytesView bytes) {
  std::vector<std::uint64_t> words;
  for (std::size_t at = 0; at == 0 || at < bytes.size(); at += kDigestPiece)
    words.push_back(
        xxh3_of_padded(bytes.subspan(at, std::min<std::size_t>(kDigestPiece, bytes.size() - at))));
  words.push_back(bytes.size());
  return xxh3_of_padded(std::as_bytes(std::span(words)));
}

TEST(Digest, IsWhatItsDefinitionSays) {
  for (const std::uint64_t bytes :
       around({1, 8, 240, kBlock, 2 * kBlock, 3 * kBlock, kDigestPiece - kBlock, kDigestPiece,
               kDigestPiece + kBlock, 3 * kDigestPiece})) {
    const Buffer data = noise(bytes);
    EXPECT_EQ(digest(data.bytes()), by_definition(data.bytes())) << bytes;
  }
}

// Nothing that members compare is lost: not the last byte, not zeros at the end, not where a piece
// is.
TEST(Digest, DiffersWhereBytesDo) {
  for (const std::uint64_t bytes : around({8, kBlock, kDigestPiece, 2 * kDigestPiece})) {
    Buffer longer = Buffer::zeroed(bytes + 1);
    const MutableBytes data = longer.bytes().first(bytes);
    copy_bytes(noise(bytes).bytes(), data);
    const std::uint64_t before = digest(data);
    EXPECT_NE(digest(longer.bytes()), before) << bytes;
    if (bytes == 0) continue;
    for (const std::uint64_t at : {std::uint64_t{0}, bytes / 2, bytes - 1}) {
      data[at] ^= std::byte{1};
      EXPECT_NE(digest(data), before) << bytes << " at " << at;
      data[at] ^= std::byte{1};
    }
    EXPECT_EQ(digest(data), before);
  }
  Buffer two = noise(2 * kDigestPiece);
  const std::uint64_t before = digest(two.bytes());
  std::ranges::rotate(two.bytes(), two.bytes().begin() + kDigestPiece);
  EXPECT_NE(digest(two.bytes()), before);
}

// Whole pieces: the library's hashes. Of a shorter one at the end those of its bytes with zeros
// behind them. In teams of one piece and of many, in two orders of their threads.
TEST(HashPieces, BodiesGiveTheHashesOfTheLibrary) {
  for (const std::uint64_t piece : {2 * kBlock, 3 * kBlock, 16 * kBlock}) {
    for (const std::uint64_t whole : {0, 1, 3, 4, 33}) {
      for (const std::uint64_t end : around({1, 8, 240, kBlock, 2 * kBlock - 1})) {
        const Buffer data = noise(whole * piece + end);
        const std::uint64_t pieces = std::max<std::uint64_t>(1, whole + (end > 0 ? 1 : 0));
        for (const Team& team : {Team(xxh3::kLanes), Team(kTeamWarp, 7), Team(kTeamThreads, 77)}) {
          std::vector<std::uint64_t> hashes(pieces + 2, 1);
          const HashPieces args{.data = data.data(),
                                .bytes = data.size(),
                                .piece_bytes = piece,
                                .hashes = hashes.data(),
                                .adds_bytes = true};
          ASSERT_EQ(cuda::pieces_of(args), pieces);
          emulate(args, team);
          for (std::uint64_t i = 0; i < pieces; ++i) {
            const std::uint64_t at = i * piece;
            const BytesView bytes =
                data.bytes().subspan(at, std::min<std::size_t>(piece, data.size() - at));
            const bool is_whole = bytes.size() == piece;
            ASSERT_EQ(hashes[i], is_whole ? swarmline::xxh3(bytes) : xxh3_of_padded(bytes))
                << piece << " " << i << " of " << data.size();
          }
          ASSERT_EQ(hashes[pieces], data.size());
          ASSERT_EQ(hashes[pieces + 1], 1U) << "beyond what is written";
        }
      }
    }
  }
}

TEST(Digest, BodiesGiveTheHosts) {
  for (const std::uint64_t bytes :
       around({1, 8, 240, kBlock, 2 * kBlock, kDigestPiece, 2 * kDigestPiece})) {
    const Buffer data = noise(bytes);
    EXPECT_EQ(emulated_digest(data.bytes()), digest(data.bytes())) << bytes;
  }
  const Buffer data = noise(5 * kDigestPiece + 12345);
  EXPECT_EQ(emulated_digest(data.bytes(), Team(kTeamWarp, 7)), digest(data.bytes()));
}

}  // namespace
}  // namespace swarmline::kernels
