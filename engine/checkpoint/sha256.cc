#include "engine/checkpoint/sha256.h"

#include <array>
#include <utility>

#include <openssl/evp.h>

#include "base/check.h"

namespace swarmline {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  SWARMLINE_CHECK(state_->context != nullptr);
  SWARMLINE_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(BytesView bytes) {
  SWARMLINE_CHECK(state_ != nullptr);
  SWARMLINE_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::finish_hex() {
  SWARMLINE_CHECK(state_ != nullptr);
  std::array<unsigned char, 32> digest{};
  unsigned size = 0;
  SWARMLINE_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1);
  state_.reset();

  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : digest) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

std::string sha256_hex(BytesView bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish_hex();
}

}  // namespace swarmline
