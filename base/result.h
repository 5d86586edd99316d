// Errors as values. A code exists only where some caller reacts to exactly that failure; `what` is
// a sentence for people.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <utility>

namespace swarmline {

enum class ErrorCode : std::uint8_t {
  kUserMistake,  // exit code 2: the sentence says where, what was expected, what to do
  kDeadline,     // a bounded wait ran out
  kStopped,      // a stop was requested
  kPeerGone,     // the other end of a connection is no more
  kRefused,  // the other side said no (full, fenced, wrong version): pick another, or exit code 3
  kCorrupt,  // bytes that do not check: count, log, disconnect
  kIncompatible,  // formats, versions or shapes that do not fit together
  kNotFound,      // no such file, key or tensor
  kIo,            // the operating system failed a file or socket operation
  kDevice,        // compute failed
  kOutOfMemory,   // the device has no room now: nothing has changed, and it may be asked again
  kDeviceLost,    // the device computes nothing more for this process
};

struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kIo;
  std::string what;
};

template <typename T = void>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(ErrorCode code, std::string what) {
  return std::unexpected<Error>(Error{code, std::move(what)});
}

const char* to_string(ErrorCode code);

}  // namespace swarmline

// Returns the error of `expression` (a Result) from the enclosing function, which must return a
// Result.
#define SWARMLINE_TRY(expression)                                        \
  do {                                                                   \
    if (auto swarmline_try_result = (expression); !swarmline_try_result) \
      return std::unexpected(std::move(swarmline_try_result).error());   \
  } while (false)
