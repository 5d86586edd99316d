// What a process of ours wrote last into its log.
//   Thread: any. Errors: a log that can't be read is empty. Bounds: kLogBytesMax of it; kTailLines.
#pragma once

#include <cstdint>
#include <string>

namespace swarmline {

inline constexpr std::uint64_t kLogBytesMax = 64 << 20;
inline constexpr std::size_t kTailLines = 12;

std::string tail_of(const std::string& log);
// The sentence that it ended with, "swarmline: SENTENCE", without the name; empty: it said none.
std::string last_word(const std::string& log);

}  // namespace swarmline
