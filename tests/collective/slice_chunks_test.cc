// How slices are cut into chunks.
#include "engine/collective/slice_chunks.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swarmline {
namespace {

using Place = SliceChunks::Place;

TEST(SliceChunksTest, ASlicesLastChunkHasTheRest) {
  const SliceChunks chunks({0, 25, 25, 40}, 10);
  EXPECT_EQ(chunks.slices(), 3U);
  EXPECT_EQ(chunks.in(0), 3U);
  EXPECT_EQ(chunks.in(1), 0U);
  EXPECT_EQ(chunks.in(2), 2U);
  EXPECT_EQ(chunks.total(), 5U);
  EXPECT_EQ(chunks.first({2, 1}), 35U);
  EXPECT_EQ(chunks.elements({0, 2}), 5U);
  EXPECT_EQ(chunks.elements({2, 1}), 5U);
  EXPECT_EQ(chunks.number({2, 0}), 3U);
  EXPECT_EQ(chunks.place(3), (Place{2, 0})) << "an empty slice has no chunk";
}

TEST(SliceChunksTest, ChunksAreUsedSliceBySliceInTurns) {
  const SliceChunks chunks({0, 25, 25, 40}, 10);
  std::vector<std::uint32_t> numbers;
  Place at;
  for (bool is = chunks.from(at); is; is = chunks.after(at)) numbers.push_back(chunks.number(at));
  EXPECT_EQ(numbers, (std::vector<std::uint32_t>{0, 3, 1, 4, 2}));
}

TEST(SliceChunksTest, EachChunkIsUsedOnceWhateverTheSlices) {
  Rng rng(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> bounds{0};
    for (std::uint64_t slices = 1 + rng.below(9); slices > 0; --slices)
      bounds.push_back(bounds.back() + (rng.below(3) == 0 ? 0 : rng.below(100)));
    const SliceChunks chunks(bounds, 1 + rng.below(20));
    std::set<std::uint32_t> used;
    std::uint64_t elements = 0;
    Place at;
    for (bool is = chunks.from(at); is; is = chunks.after(at)) {
      const std::uint32_t number = chunks.number(at);
      EXPECT_TRUE(used.insert(number).second);
      EXPECT_EQ(chunks.place(number), at);
      elements += chunks.elements(at);
    }
    EXPECT_EQ(used.size(), chunks.total());
    EXPECT_EQ(elements, bounds.back());
  }
}

}  // namespace
}  // namespace swarmline
