#include "engine/identity/secrets.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include "base/check.h"
#include "engine/identity/openssl_objects.h"

namespace swarmline {

std::string random_secret(std::size_t bytes) {
  std::string secret(bytes, '\0');
  SWARMLINE_CHECK(
      RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), static_cast<int>(bytes)) == 1);
  return secret;
}

Digest sha256_of(std::string_view bytes) {
  Digest digest;
  SHA256(bytes_of(bytes), bytes.size(), digest.data());
  return digest;
}

Digest hmac_sha256(std::string_view key, std::string_view message) {
  Digest digest;
  unsigned int size = 0;
  SWARMLINE_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(message),
                       message.size(), digest.data(), &size) != nullptr &&
                  size == digest.size());
  return digest;
}

std::string as_string(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

bool equal_in_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace swarmline
