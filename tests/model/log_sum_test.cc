// Logarithms of sums of exponentials as the device merges them, beside sums in double.
#include "engine/model/log_sum.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swarmline {
namespace {

std::vector<float> terms(std::size_t count, double spread) {
  Rng rng(count);
  std::vector<float> all(count);
  for (float& term : all) term = static_cast<float>(spread * (rng.uniform() - 0.5));
  return all;
}

LogSum of(const std::vector<float>& all, std::size_t first, std::size_t end) {
  LogSum sum;
  for (std::size_t i = first; i < end; ++i) sum = with_term(sum, all[i]);
  return sum;
}

TEST(LogSum, IsThatOfDoublesHoweverItIsMerged) {
  for (const std::size_t count : {1UL, 2UL, 33UL, 4096UL}) {
    for (const double spread : {0.0, 1.0, 80.0, 2000.0}) {
      const std::vector<float> all = terms(count, spread);
      const double top = *std::ranges::max_element(all);
      double sum = 0;
      for (const float term : all) sum += std::exp(double{term} - top);
      const double expected = top + std::log(sum);
      const double allowed = 1e-5 * std::max(1.0, std::abs(expected));
      EXPECT_NEAR(value_of(of(all, 0, count)), expected, allowed);
      for (const std::size_t cut : {std::size_t{0}, count / 3, count})
        EXPECT_NEAR(value_of(merged(of(all, 0, cut), of(all, cut, count))), expected, allowed);
    }
  }
}

TEST(LogSum, OfWhatIsNotFiniteIsNotFinite) {
  for (const float bad : {NAN, INFINITY}) {
    EXPECT_FALSE(std::isfinite(value_of(of({1, bad, 2}, 0, 3))));
    EXPECT_FALSE(std::isfinite(value_of(of({bad}, 0, 1)))) << bad;
    EXPECT_FALSE(std::isfinite(value_of(merged(of({bad}, 0, 1), of({1}, 0, 1)))));
    EXPECT_FALSE(std::isfinite(value_of(merged(of({1}, 0, 1), of({bad}, 0, 1)))));
  }
  EXPECT_EQ(value_of(of({-INFINITY, 3, -INFINITY}, 0, 3)), 3);
}

}  // namespace
}  // namespace swarmline
