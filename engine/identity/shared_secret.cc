#include "engine/identity/shared_secret.h"

#include <fmt/format.h>

#include "engine/identity/key_hash.h"
#include "engine/store/secret_file.h"

namespace swarmline {
namespace {
constexpr std::uint64_t kFileBytesMax = 8 * kSecretBytes;
}  // namespace

Result<std::string> make_shared_secret(const std::string& path) {
  const std::string secret = random_secret(kSecretBytes);
  const auto made = create_secret_file(path, to_hex(as_bytes(secret)) + "\n");
  if (!made && made.error().code != ErrorCode::kRefused) return std::unexpected(made.error());
  return read_shared_secret(path);
}

Result<std::string> read_shared_secret(const std::string& path) {
  auto text = read_secret_file(path, kFileBytesMax);
  if (!text) return text;
  while (text->ends_with('\n')) text->pop_back();
  auto secret = from_hex(*text, kSecretBytes);
  if (secret) return secret;
  return fail(ErrorCode::kUserMistake,
              fmt::format("{} is no secret of a run: expected {} hex digits; remove it, and the "
                          "coordinator makes another when it starts",
                          path, 2 * kSecretBytes));
}

}  // namespace swarmline
