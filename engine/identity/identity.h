// An Ed25519 key (RFC 8032) that a process or a run is known by, and the self-signed certificate
// that TLS wants to see of it. Nobody but who holds the key can sign for it; nobody vouches for it:
// it is known by its hash alone.
//   Ownership: values; copies share one key, which is wiped with the last.
//   Thread:    immutable after it is made; any.
//   Errors:    kCorrupt with a sentence, of bytes that are no such key.
//   Source:    OpenSSL 3.0 (EVP_PKEY, PEM of PKCS #8, X509).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/identity/key_hash.h"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace swarmline {

inline constexpr std::size_t kPublicKeyBytes = 32;
inline constexpr std::size_t kPrivateKeyBytes = 32;
inline constexpr std::size_t kSignatureBytes = 64;

class Identity {
 public:
  static Identity make();
  // The same from the same kPrivateKeyBytes (RFC 8032 calls them the private key), whoever knows
  // which.
  static Identity from_private_key(std::string_view bytes);
  // PEM of an unencrypted PKCS #8 private key. The sentence begins with `where`.
  static Result<Identity> from_pem(std::string_view pem, std::string_view where);
  std::string to_pem() const;

  const KeyHash& hash() const { return hash_; }
  const std::string& public_key() const { return public_key_; }  // kPublicKeyBytes, raw
  std::string sign(std::string_view message) const;              // kSignatureBytes
  // DER of an X.509 certificate of the key, signed by itself, which expires never. `comment`:
  // ASCII, for who reads it (NID_netscape_comment).
  std::string self_signed_certificate(std::string_view comment = {}) const;
  evp_pkey_st* handle() const { return key_.get(); }  // for TLS; borrowed

 private:
  explicit Identity(std::shared_ptr<evp_pkey_st> key);
  std::shared_ptr<evp_pkey_st> key_;
  std::string public_key_;
  KeyHash hash_;
};

// Of a raw public key. kCorrupt where it has another length.
Result<KeyHash> hash_of_public_key(std::string_view public_key);
bool verify_signature(std::string_view public_key, std::string_view message,
                      std::string_view signature);

}  // namespace swarmline
