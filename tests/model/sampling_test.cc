// What the next token is picked from, and how often.
#include "engine/model/sampling.h"

#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

const std::vector<float> kLogits = {1.0F, 3.0F, 2.0F, 3.0F, -1.0F};

std::map<std::int32_t, int> counts(const SamplingOptions& options, int draws) {
  std::map<std::int32_t, int> found;
  for (int i = 0; i < draws; ++i) ++found[pick_token(options, kLogits, std::uint64_t(i))];
  return found;
}

TEST(Sampling, WithoutTemperatureItIsTheLikeliestTheFirstOfTwo) {
  for (std::uint64_t number : {0ULL, 1ULL, 77ULL})
    EXPECT_EQ(pick_token({.temperature = 0, .top_k = 4, .seed = number}, kLogits, number), 1);
}

TEST(Sampling, TheSameSeedPicksTheSameAndAnotherSeedAnother) {
  std::vector<std::int32_t> a, b, c;
  for (std::uint64_t i = 0; i < 64; ++i) {
    a.push_back(pick_token({.seed = 5}, kLogits, i));
    b.push_back(pick_token({.seed = 5}, kLogits, i));
    c.push_back(pick_token({.seed = 6}, kLogits, i));
  }
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

// Within five standard deviations of what softmax says.
TEST(Sampling, SharesAreThoseOfSoftmax) {
  constexpr int kDraws = 20000;
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double total = 0;
    for (const float logit : kLogits) total += std::exp(logit / temperature);
    const auto found = counts({.temperature = temperature}, kDraws);
    for (std::size_t token = 0; token < kLogits.size(); ++token) {
      const double share = std::exp(kLogits[token] / temperature) / total;
      const double deviation = std::sqrt(kDraws * share * (1 - share));
      const auto at = found.find(static_cast<std::int32_t>(token));
      EXPECT_NEAR(at == found.end() ? 0 : at->second, kDraws * share, 5 * deviation + 1)
          << temperature << " " << token;
    }
  }
}

TEST(Sampling, TopKAndTopPLeaveOutTheUnlikely) {
  const auto tokens = [](const SamplingOptions& options) {
    std::set<std::int32_t> found;
    for (const auto& [token, count] : counts(options, 2000)) found.insert(token);
    return found;
  };
  using Set = std::set<std::int32_t>;
  EXPECT_EQ(tokens({.top_k = 1}), (Set{1}));
  EXPECT_EQ(tokens({.top_k = 2}), (Set{1, 3}));
  EXPECT_EQ(tokens({.top_k = 3}), (Set{1, 2, 3}));
  EXPECT_EQ(tokens({.top_k = 99}).size(), 5U);
  // 0.4 and 0.4 of the two likeliest are 0.80 together, 0.15 of the next.
  EXPECT_EQ(tokens({.top_p = 0.3}), (Set{1}));
  EXPECT_EQ(tokens({.top_p = 0.7}), (Set{1, 3}));
  EXPECT_EQ(tokens({.top_p = 0.9}), (Set{1, 2, 3}));
  EXPECT_EQ(tokens({.top_k = 2, .top_p = 0.99}), (Set{1, 3}));
}

}  // namespace
}  // namespace swarmline
