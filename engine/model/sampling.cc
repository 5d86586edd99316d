#include "engine/model/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace swarmline {

std::int32_t pick_token(const SamplingOptions& options, std::span<const float> logits,
                        std::uint64_t number) {
  SWARMLINE_CHECK(!logits.empty());
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float left = logits[static_cast<std::size_t>(a)];
    const float right = logits[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  };
  if (options.temperature == 0) return *std::ranges::min_element(tokens, likelier);
  const std::size_t kept =
      options.top_k == 0 ? tokens.size() : std::min<std::size_t>(options.top_k, tokens.size());
  std::ranges::partial_sort(tokens, tokens.begin() + static_cast<std::ptrdiff_t>(kept), likelier);
  tokens.resize(kept);
  const double peak = logits[static_cast<std::size_t>(tokens.front())];
  std::vector<double> weights;
  for (const std::int32_t token : tokens)
    weights.push_back(
        std::exp((logits[static_cast<std::size_t>(token)] - peak) / options.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double nucleus = 0;
  std::size_t inside = 0;
  while (inside < weights.size() && (inside == 0 || nucleus < options.top_p * total))
    nucleus += weights[inside++];
  double left = Rng(options.seed).split("sampling").split(number).uniform() * nucleus;
  for (std::size_t i = 0; i + 1 < inside; ++i) {
    if (left < weights[i]) return tokens[i];
    left -= weights[i];
  }
  return tokens[inside - 1];
}

}  // namespace swarmline
