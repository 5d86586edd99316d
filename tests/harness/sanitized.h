// Whether this build looks for bad memory accesses: it runs several times as slow. Loops over
// moments and seeds, which a plain build runs in full, take fewer there.
#pragma once

namespace swarmline {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

// What a process takes in memory for each byte that its program touches: ThreadSanitizer keeps four
// beside it.
#if defined(__has_feature)
inline constexpr int kBytesTakenPerByte = __has_feature(thread_sanitizer) ? 5 : 1;
#else
inline constexpr int kBytesTakenPerByte = 1;
#endif

}  // namespace swarmline
