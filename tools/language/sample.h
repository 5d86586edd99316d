// A few words of a model that has just been trained.
//   Thread: blocking. Bounds: kSampleParametersMax, kSampleTokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace swarmline {

inline constexpr std::uint64_t kSampleParametersMax = 100'000'000;  // seconds on one core
inline constexpr std::uint64_t kSampleTokens = 240;

// Of the run's newest checkpoint; empty where its tokens are not known, it is too large to wait
// for, or it can't be read.
std::optional<std::string> short_sample(const std::string& run_folder);

}  // namespace swarmline
