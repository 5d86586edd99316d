// Picks the next token from logits: greedily, or at random by temperature, of the likeliest alone.
//   What:   logits / temperature; of these the top_k largest; of these the likeliest whose
//           probabilities first reach top_p together; one of them at random. Ties go to the smaller
//           token. The same seed, logits and number of the pick give the same token.
//   Thread: pure. Source: Holtzman et al., The Curious Case of Neural Text Degeneration, 2020
//   (top_p).
#pragma once

#include <cstdint>
#include <span>

namespace swarmline {

struct SamplingOptions {
  double temperature = 1;   // 0: the likeliest token, whatever else says
  std::uint32_t top_k = 0;  // 0: all
  double top_p = 1;         // 1: all
  std::uint64_t seed = 1;
};

// `number`: of the token in its text, which the random draw depends on. Logits are finite, at least
// one.
std::int32_t pick_token(const SamplingOptions& options, std::span<const float> logits,
                        std::uint64_t number);

}  // namespace swarmline
