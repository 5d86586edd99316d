// A key in a file that only its owner may read (mode 0600).
//   Thread: any; blocking. Errors: those of secret_file.h; kUserMistake where the file holds no
//           Ed25519 key: one sentence with the path. Bounds: kKeyFileBytesMax.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/identity/identity.h"

namespace swarmline {

inline constexpr std::uint64_t kKeyFileBytesMax = 16 * 1024;

Result<Identity> load_key(const std::string& path);
// Makes one where there is none; of several that do it at once, all have the same.
Result<Identity> load_or_make_key(const std::string& path);

}  // namespace swarmline
