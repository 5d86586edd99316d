// What the program's exit code says. Scripts rely on these.
#pragma once

#include "base/result.h"

namespace swarmline {

inline constexpr int kExitDone = 0;  // done or drained
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUserMistake = 2;
inline constexpr int kExitRefused = 3;  // fenced or refused
inline constexpr int kExitInterrupted = 130;

inline int exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kUserMistake:
    case ErrorCode::kNotFound:
    case ErrorCode::kIncompatible:
      return kExitUserMistake;
    case ErrorCode::kRefused:
      return kExitRefused;
    case ErrorCode::kStopped:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

// Prints "swarmline: SENTENCE" on standard error and returns the exit code.
int report_error(const Error& error);

}  // namespace swarmline
