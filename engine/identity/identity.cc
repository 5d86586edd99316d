#include "engine/identity/identity.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "base/check.h"
#include "engine/identity/openssl_objects.h"
#include "engine/identity/secrets.h"

namespace swarmline {
namespace {

// SubjectPublicKeyInfo of Ed25519 up to the key itself (RFC 8410, 4).
constexpr std::string_view kSpkiPrefix("\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00", 12);
constexpr const char* kNotBefore = "20000101000000Z";
constexpr const char* kNotAfter = "99991231235959Z";  // "no well-defined expiration", RFC 5280

using Context = std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>>;
using Text = std::unique_ptr<ASN1_IA5STRING, Freed<ASN1_IA5STRING_free>>;

std::shared_ptr<EVP_PKEY> shared(EVP_PKEY* key) {
  return {key, [](EVP_PKEY* last) { EVP_PKEY_free(last); }};
}

std::string raw_public_key(const EVP_PKEY* key) {
  std::string raw(kPublicKeyBytes, '\0');
  std::size_t size = raw.size();
  SWARMLINE_CHECK(
      EVP_PKEY_get_raw_public_key(key, reinterpret_cast<unsigned char*>(raw.data()), &size) == 1 &&
      size == kPublicKeyBytes);
  return raw;
}

bool add_comment(X509* x509, std::string_view comment) {
  const Text text(ASN1_IA5STRING_new());
  return text && ASN1_STRING_set(text.get(), comment.data(), static_cast<int>(comment.size())) &&
         X509_add1_ext_i2d(x509, NID_netscape_comment, text.get(), 0, X509V3_ADD_DEFAULT) == 1;
}

// A key that asks for a passphrase is refused: nobody is there to be asked.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

}  // namespace

Identity::Identity(std::shared_ptr<evp_pkey_st> key)
    : key_(std::move(key)),
      public_key_(raw_public_key(key_.get())),
      hash_(*hash_of_public_key(public_key_)) {}

Identity Identity::make() {
  EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  SWARMLINE_CHECK(key != nullptr);
  return Identity(shared(key));
}

Identity Identity::from_private_key(std::string_view bytes) {
  SWARMLINE_CHECK(bytes.size() == kPrivateKeyBytes);
  EVP_PKEY* const key =
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, bytes_of(bytes), bytes.size());
  SWARMLINE_CHECK(key != nullptr);
  return Identity(shared(key));
}

Result<Identity> Identity::from_pem(std::string_view pem, std::string_view where) {
  const OwnedBio source(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(source.get(), nullptr, no_passphrase, nullptr);
  ERR_clear_error();
  if (key == nullptr)
    return fail(ErrorCode::kCorrupt,
                fmt::format("{}: expected an Ed25519 private key (PEM, PKCS #8, without a "
                            "passphrase), found something else, or it is damaged",
                            where));
  auto held = shared(key);
  if (EVP_PKEY_get_id(key) != EVP_PKEY_ED25519)
    return fail(ErrorCode::kCorrupt,
                fmt::format("{}: expected an Ed25519 key, found one of the type {}; make one by "
                            "\"openssl genpkey -algorithm ed25519\"",
                            where, EVP_PKEY_get0_type_name(key)));
  return Identity(std::move(held));
}

std::string Identity::to_pem() const {
  const OwnedBio target(BIO_new(BIO_s_mem()));
  SWARMLINE_CHECK(PEM_write_bio_PKCS8PrivateKey(target.get(), key_.get(), nullptr, nullptr, 0,
                                                nullptr, nullptr) == 1);
  char* start = nullptr;
  const long size = BIO_get_mem_data(target.get(), &start);
  std::string pem(start, static_cast<std::size_t>(size));
  OPENSSL_cleanse(start, static_cast<std::size_t>(size));
  return pem;
}

std::string Identity::sign(std::string_view message) const {
  std::string signature(kSignatureBytes, '\0');
  std::size_t size = signature.size();
  const Context context(EVP_MD_CTX_new());
  SWARMLINE_CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
                  EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()),
                                 &size, bytes_of(message), message.size()) == 1 &&
                  size == kSignatureBytes);
  return signature;
}

std::string Identity::self_signed_certificate(std::string_view comment) const {
  const OwnedCertificate certificate(X509_new());
  X509* const x509 = certificate.get();
  X509_NAME* const name = X509_get_subject_name(x509);
  const std::string text = short_text(hash_);
  const bool made = X509_set_version(x509, kX509Version3) == 1 &&
                    ASN1_INTEGER_set(X509_get_serialNumber(x509), 1) == 1 &&
                    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, bytes_of(text),
                                               static_cast<int>(text.size()), -1, 0) == 1 &&
                    X509_set_issuer_name(x509, name) == 1 &&
                    ASN1_TIME_set_string_X509(X509_getm_notBefore(x509), kNotBefore) == 1 &&
                    ASN1_TIME_set_string_X509(X509_getm_notAfter(x509), kNotAfter) == 1 &&
                    X509_set_pubkey(x509, key_.get()) == 1 &&
                    (comment.empty() || add_comment(x509, comment)) &&
                    X509_sign(x509, key_.get(), nullptr) > 0;
  SWARMLINE_CHECK(made);
  unsigned char* der = nullptr;
  const int size = i2d_X509(x509, &der);
  SWARMLINE_CHECK(size > 0);
  std::string result(reinterpret_cast<const char*>(der), static_cast<std::size_t>(size));
  OPENSSL_free(der);
  return result;
}

Result<KeyHash> hash_of_public_key(std::string_view public_key) {
  if (public_key.size() != kPublicKeyBytes)
    return fail(ErrorCode::kCorrupt, fmt::format("a public key has {} bytes, not {}",
                                                 kPublicKeyBytes, public_key.size()));
  KeyHash hash;
  std::ranges::copy(sha256_of(std::string(kSpkiPrefix) + std::string(public_key)),
                    hash.bytes.begin());
  return hash;
}

bool verify_signature(std::string_view public_key, std::string_view message,
                      std::string_view signature) {
  if (public_key.size() != kPublicKeyBytes || signature.size() != kSignatureBytes) return false;
  const OwnedKey key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes_of(public_key),
                                                 public_key.size()));
  const Context context(EVP_MD_CTX_new());
  const bool good =
      key && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
      EVP_DigestVerify(context.get(), bytes_of(signature), signature.size(), bytes_of(message),
                       message.size()) == 1;
  ERR_clear_error();
  return good;
}

}  // namespace swarmline
