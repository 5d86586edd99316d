// A run's status (or what else a command takes in its place), from wherever the user names it.
//   Errors: kUserMistake, kIo, and those of asking a coordinator. Blocking. Bounds: bytes_max.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace swarmline {

// "-": the standard input; a file; or a running run: its folder, its coordinator's address, or a
// join string.
Result<std::string> read_status_source(const std::string& named, std::uint64_t bytes_max);

}  // namespace swarmline
