#include "pipeline/coordinator/steps/uneven_slices.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/collective/slices.h"

namespace swarmline {
namespace {

using Ends = std::vector<std::uint64_t>;
constexpr std::uint64_t kElements = 1 << 20;

std::vector<double> sizes_of(const Ends& ends) {
  std::vector<double> sizes;
  std::uint64_t begin = 0;
  for (const std::uint64_t end : ends)
    sizes.push_back(static_cast<double>(end - std::exchange(begin, end)));
  return sizes;
}

TEST(UnevenSlices, AreEqualWhereNothingIsKnownOrGained) {
  const std::vector<std::vector<double>> groups = {
      {0, 0, 0}, {1e9}, {1e9, 1e8}, {1e9, 1e9, 1e9}, {1e9, 0, 1e9}, {1e9, 0.98e9, 1.02e9}};
  for (const auto& bandwidths : groups)
    EXPECT_EQ(uneven_slice_ends(kElements, bandwidths), Ends{}) << bandwidths.size();
}

TEST(UnevenSlices, GoByWhatTheLinksCanCarry) {
  // The slowest sends its own part and gets the sum, and nobody can spare it that.
  const Ends slow = uneven_slice_ends(kElements, std::vector{1e9, 1e8, 1e9});
  ASSERT_EQ(slow.size(), 3U);
  EXPECT_EQ(slow[0], slow[1]) << "it sums nothing";
  EXPECT_EQ(slow[2], kElements);
  EXPECT_EQ(slow[0], kElements / 2);
  const std::vector<double> unlike = {1e8, 2e8, 5e8, 1e9};
  const std::vector<double> cut = sizes_of(uneven_slice_ends(kElements, unlike));
  const std::vector<double> best = water_filling(unlike).value();
  ASSERT_EQ(cut.size(), best.size());
  for (std::size_t i = 0; i < cut.size(); ++i)
    EXPECT_NEAR(cut[i], best[i] * kElements, kSliceAlignment);
}

TEST(UnevenSlices, WhoSaysNothingCountsAsMostDo) {
  EXPECT_EQ(uneven_slice_ends(kElements, std::vector{1e9, 0.0, 1e9, 2e8, 2e8}),
            uneven_slice_ends(kElements, std::vector{1e9, 1e9, 1e9, 2e8, 2e8}));
}

TEST(UnevenSlices, ABoastCountsForNoMoreThanItsBound) {
  EXPECT_EQ(uneven_slice_ends(kElements, std::vector{1e9, 1e9, 1e9, 1e15}),
            uneven_slice_ends(kElements, std::vector{1e9, 1e9, 1e9, 1e9 * kBandwidthFactorMax}));
}

TEST(UnevenSlices, EndWhereCodecBlocksDo) {
  const Ends ends = uneven_slice_ends(kElements + 17, std::vector{3e8, 5e8, 9e8});
  ASSERT_EQ(ends.size(), 3U);
  EXPECT_EQ(ends[0] % kSliceAlignment, 0U);
  EXPECT_EQ(ends[1] % kSliceAlignment, 0U);
  EXPECT_EQ(ends[2], kElements + 17);
}

}  // namespace
}  // namespace swarmline
