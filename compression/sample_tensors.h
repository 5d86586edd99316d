// Tensors to try codecs on, made from a seed: what activations and gradients look like, from kind
// to cruel. For benchmarks and tests; nothing that trains uses them.
//   normal            N(0, 1)
//   heavy-tailed      Student's t, 3 degrees of freedom: gradients of parameters
//   outlier-channels  N(0, 1) in rows of 4096 channels, 7 of which are 20 to 60 times as large in
//                     every row: activations of large language models
//   massive-tokens    the same, and in one row of 64 two of those channels are 1000 times N(0, 1)
//   gradients         Student's t, 3 degrees of freedom, times a log-normal factor of each row of
//                     512: gradients whose rows differ in size by powers of ten
//   Ownership: the caller's. Thread: any. Errors: none.
//   Source:    the shapes of outliers are those of LLM.int8() (Dettmers et al., 2022) and of
//              "Massive Activations in Large Language Models" (Sun et al., 2024).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace swarmline {

enum class SampleTensor : std::uint8_t {
  kNormal,
  kHeavyTailed,
  kOutlierChannels,
  kMassiveTokens,
  kGradients,
};
inline constexpr std::array kSampleTensors = {
    SampleTensor::kNormal, SampleTensor::kHeavyTailed, SampleTensor::kOutlierChannels,
    SampleTensor::kMassiveTokens, SampleTensor::kGradients};
inline constexpr std::size_t kSampleRowChannels = 4096;  // of the two kinds with channels

std::string_view name_of(SampleTensor kind);
std::optional<SampleTensor> sample_tensor_from_name(std::string_view name);

// `n` elements, any n >= 0; a longer tensor of the same seed begins with the shorter one.
std::vector<float> make_sample(SampleTensor kind, std::size_t n, std::uint64_t seed);

}  // namespace swarmline
