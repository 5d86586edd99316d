// OpenSSL's objects as owners of themselves. For the files of this folder.
//   Thread: as OpenSSL's. Errors: null where OpenSSL made nothing.
#pragma once

#include <memory>
#include <string_view>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

namespace swarmline {

template <auto free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
using OwnedBio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using OwnedCertificate = std::unique_ptr<X509, Freed<X509_free>>;

inline constexpr long kX509Version3 = 2;

inline const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace swarmline
