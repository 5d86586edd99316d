// What data may be at most.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swarmline {

inline constexpr std::uint32_t kVocabMax = 1U << 24;  // token numbers
inline constexpr std::size_t kDataFilesMax = 32768;   // each is one mapping; Linux allows 65530

}  // namespace swarmline
