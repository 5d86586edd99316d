// CHECK stays on in release: a broken invariant is a programmer's error and aborts with a trace.
// Operating errors and other people's bytes are Results, never CHECKs. Any thread.
#pragma once

#include <string>

namespace swarmline {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& detail);

}  // namespace swarmline

#define SWARMLINE_CHECK(condition)                                   \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::swarmline::check_failed(__FILE__, __LINE__, #condition, {}); \
  } while (false)

// `detail` is any expression convertible to std::string; evaluated only on failure.
#define SWARMLINE_CHECK_MSG(condition, detail)                             \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::swarmline::check_failed(__FILE__, __LINE__, #condition, (detail)); \
  } while (false)
