// Libtorch reports by exceptions: for the files of this folder, they become values.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"
#include "engine/model/libtorch.h"

namespace swarmline {

// What `body` returns; or kOutOfMemory or kDevice with libtorch's sentence, after `what` was done,
// and without the C++ stack that is of no use to a user.
template <typename T, typename Body>
Result<T> guarded(const char* what, Body&& body) {
  const auto error = [&](ErrorCode code, const char* reason) {
    return fail(code, std::string(what) + ": " + reason);
  };
  try {
    return body();
  } catch (const c10::OutOfMemoryError& thrown) {
    return error(ErrorCode::kOutOfMemory, thrown.what_without_backtrace());
  } catch (const c10::Error& thrown) {
    return error(ErrorCode::kDevice, thrown.what_without_backtrace());
  } catch (const std::exception& thrown) {
    return error(ErrorCode::kDevice, thrown.what());
  }
}

template <typename T>
bool is_full(const Result<T>& result) {
  return !result && result.error().code == ErrorCode::kOutOfMemory;
}

}  // namespace swarmline
