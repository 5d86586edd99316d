// Lanes that hash a piece as the CUDA kernel's do give the hash of the library.
#include "kernels/format/xxh3.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/rng.h"

namespace swarmline::kernels {
namespace {

using namespace xxh3;

std::uint64_t hash_by_lanes(const std::vector<std::uint64_t>& words) {
  std::uint64_t sums[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) sums[lane] = first_sum(lane);
  const std::size_t stripes = words.size() / kLanes;
  for (std::size_t stripe = 0; stripe < stripes; ++stripe) {
    const unsigned in_block = stripe % kStripes;
    const bool last = stripe + 1 == stripes;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t key = last ? last_key(kSecret, lane) : kSecret.word[in_block + lane];
      sums[lane] = accumulated(sums[lane], words[stripe * kLanes + lane],
                               words[stripe * kLanes + (lane ^ 1U)], key);
      if (in_block + 1 == kStripes && !last)
        sums[lane] = scrambled(sums[lane], scramble_key(kSecret, lane));
    }
  }
  std::uint64_t folds = 0;
  for (unsigned pair = 0; pair < kLanes / 2; ++pair)
    folds += folded(kSecret, pair, sums[2 * pair], sums[2 * pair + 1]);
  return finished(folds, words.size() * sizeof(std::uint64_t));
}

TEST(Xxh3, LanesGiveTheHashOfTheLibrary) {
  for (const std::size_t blocks : {2UL, 3UL, 16UL, 1024UL}) {
    Rng rng(blocks);
    std::vector<std::uint64_t> words(blocks * kBlockBytes / sizeof(std::uint64_t));
    for (std::uint64_t& word : words) word = rng.next_u64();
    const std::uint64_t expected = swarmline::xxh3(std::as_bytes(std::span(words)));
    EXPECT_EQ(hash_by_lanes(words), expected) << blocks;
    words[words.size() / 2] ^= 1;
    EXPECT_NE(hash_by_lanes(words), expected);
  }
}

}  // namespace
}  // namespace swarmline::kernels
