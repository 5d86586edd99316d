#include "engine/data/mixture.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"
#include "engine/data/permutation.h"

namespace swarmline {

namespace {

// Whole numbers that add up to kMixtureParts, none of them 0: what is left over by rounding down
// goes to the largest remainders, the first of equal ones.
std::vector<std::uint32_t> shares_of(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::uint32_t> shares;
  std::vector<std::pair<double, std::size_t>> remainders;
  std::uint32_t given = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double exact = weights[i] / sum * kMixtureParts;
    const auto whole = std::max(1U, static_cast<std::uint32_t>(exact));
    shares.push_back(whole);
    remainders.emplace_back(whole - exact, i);
    given += whole;
  }
  std::ranges::sort(remainders);
  for (std::size_t i = 0; given < kMixtureParts; ++i, ++given)
    ++shares[remainders[i % remainders.size()].second];
  for (; given > kMixtureParts; --given) --*std::ranges::max_element(shares);
  return shares;
}

}  // namespace

Mixture::Mixture(std::span<const double> weights, std::uint64_t seed)
    : seed_(Rng(seed).split("mixture").seed()) {
  SWARMLINE_CHECK(!weights.empty() && weights.size() <= kMixtureParts);
  ends_ = shares_of(weights);
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
}

Mixture::Draw Mixture::at(std::uint64_t position) const {
  if (ends_.size() == 1) return {.part = 0, .turn = position};
  const std::uint64_t round = position / kMixtureParts;
  const IndexPermutation order(kMixtureParts, Rng(seed_).split(round).seed());
  const auto slot = static_cast<std::uint32_t>(order.apply(position % kMixtureParts));
  const auto part =
      static_cast<std::uint32_t>(std::ranges::upper_bound(ends_, slot) - ends_.begin());
  return {.part = part, .turn = round * share(part) + (slot - begin(part))};
}

}  // namespace swarmline
