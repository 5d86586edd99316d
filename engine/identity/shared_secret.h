// A secret in a file that only its owner reads (hex, mode 0600), shared by who may read it.
//   Thread: any; blocking. Errors: those of secret_file.h; kUserMistake of text that is no secret.
//   Bounds: kSecretBytes.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/identity/secrets.h"

namespace swarmline {

// Made where there is none: of two that make it at once, one does, and both read the same.
Result<std::string> make_shared_secret(const std::string& path);
Result<std::string> read_shared_secret(const std::string& path);

}  // namespace swarmline
