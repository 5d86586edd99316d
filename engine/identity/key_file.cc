#include "engine/identity/key_file.h"

#include <utility>

#include "engine/store/secret_file.h"

namespace swarmline {

Result<Identity> load_key(const std::string& path) {
  auto pem = read_secret_file(path, kKeyFileBytesMax);
  if (!pem && pem.error().code == ErrorCode::kRefused)
    return fail(ErrorCode::kUserMistake, pem.error().what + ": that is no key");
  if (!pem) return std::unexpected(std::move(pem).error());
  auto key = Identity::from_pem(*pem, path);
  if (!key) return fail(ErrorCode::kUserMistake, key.error().what);
  return key;
}

Result<Identity> load_or_make_key(const std::string& path) {
  auto there = load_key(path);
  if (there || there.error().code != ErrorCode::kNotFound) return there;
  const auto written = create_secret_file(path, Identity::make().to_pem());
  if (!written && written.error().code != ErrorCode::kRefused)
    return std::unexpected(written.error());
  return load_key(path);
}

}  // namespace swarmline
