// Files that only their owner may read: keys, invites. What others may read as well is refused, so
// that nobody goes on with a secret that is none any more.
//   Thread: any; blocking. Errors: kNotFound, kIo, kRefused (the file exists), kUserMistake (its
//           mode is not 0600 or 0400, it is no regular file, or another user's): with the path.
//   Bounds: the caller's `bytes_max`; kSecretLockWait for the lock of an appended file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace swarmline {

inline constexpr Duration kSecretLockWait = std::chrono::seconds(2);

Result<std::string> read_secret_file(const std::string& path, std::uint64_t bytes_max);
// Whole or not at all, fsynced. kRefused where there is one already; it stays as it is.
Result<void> create_secret_file(const std::string& path, std::string_view text);
// The same, but in the place of one that is there.
Result<void> replace_secret_file(const std::string& path, std::string_view text);
// Appends what `line` makes of the file as it is, and a line's end; made if need be, fsynced. No
// two do it at a time. Nothing is appended where `line` fails or makes an empty text.
using NextLine = std::function<Result<std::string>(std::string_view so_far)>;
Result<void> append_secret_line(const std::string& path, std::uint64_t bytes_max,
                                const NextLine& line);
// The same, but what `text` makes takes the place of the whole file, at once.
using NextText = std::function<Result<std::string>(std::string_view so_far)>;
Result<void> rewrite_secret_file(const std::string& path, std::uint64_t bytes_max,
                                 const NextText& text);

}  // namespace swarmline
