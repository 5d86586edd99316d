#include "base/order_statistics.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swarmline {
namespace {

TEST(OrderStatistics, NthSmallestIsWhatSortingPutsThere) {
  Rng rng(1);
  for (std::size_t count = 1; count < 20; ++count) {
    std::vector<std::uint64_t> values(count);
    for (std::uint64_t& value : values) value = rng.below(8);  // with ties
    std::vector<std::uint64_t> sorted = values;
    std::ranges::sort(sorted);
    for (std::size_t n = 0; n < count; ++n) EXPECT_EQ(nth_smallest(values, n), sorted[n]);
  }
}

TEST(OrderStatistics, TheMedianOfAnEvenNumberIsTheUpperOne) {
  EXPECT_EQ(median(std::vector{7}), 7);
  EXPECT_EQ(median(std::vector{2, 1}), 2);
  EXPECT_EQ(median(std::vector{3, 1, 2}), 2);
  EXPECT_EQ(median(std::vector{4, 1, 3, 2}), 3);
}

TEST(OrderStatistics, ValuesStayAsTheyWere) {
  const std::vector<std::string> values = {"c", "a", "b"};
  EXPECT_EQ(median(values), "b");
  EXPECT_EQ(values, (std::vector<std::string>{"c", "a", "b"}));
}

TEST(OrderStatisticsDeathTest, NothingStandsAmongNoValues) {
  EXPECT_DEATH(median(std::vector<int>{}), "n < values.size");
}

}  // namespace
}  // namespace swarmline
