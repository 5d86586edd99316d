#include "tests/store/test_authority.h"

#include <functional>
#include <memory>

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "engine/store/files.h"
#include "engine/store/secret_file.h"

namespace swarmline {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

Key new_key() {
  return {EVP_EC_gen("P-256"), EVP_PKEY_free};
}

std::string pem_of(const std::function<int(BIO*)>& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), BIO_free);
  EXPECT_EQ(write(out.get()), 1);
  const char* bytes = nullptr;
  const long size = BIO_get_mem_data(out.get(), &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}
std::string pem_of(X509* certificate) {
  return pem_of([&](BIO* out) { return PEM_write_bio_X509(out, certificate); });
}

void extend(X509* certificate, int extension, const char* value) {
  X509_EXTENSION* made = X509V3_EXT_conf_nid(nullptr, nullptr, extension, value);
  ASSERT_NE(made, nullptr) << value;
  X509_add_ext(certificate, made, -1);
  X509_EXTENSION_free(made);
}

Certificate certify(EVP_PKEY* subject, const std::string& name, X509* issuer, EVP_PKEY* by) {
  Certificate made(X509_new(), X509_free);
  X509_set_version(made.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), issuer == nullptr ? 1 : 2);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 24 * 3600);
  X509_set_pubkey(made.get(), subject);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(made.get(), X509_get_subject_name(issuer != nullptr ? issuer : made.get()));
  if (issuer == nullptr) {
    extend(made.get(), NID_basic_constraints, "critical,CA:TRUE");
  } else {
    extend(made.get(), NID_subject_alt_name, "IP:127.0.0.1");
  }
  EXPECT_GT(X509_sign(made.get(), by, EVP_sha256()), 0);
  return made;
}

}  // namespace

EtcdTlsFiles make_test_certificate(const TempFolder& folder, const std::string& name) {
  const Key authority_key = new_key(), key = new_key();
  const Certificate authority =
      certify(authority_key.get(), name + "-authority", nullptr, authority_key.get());
  const Certificate own = certify(key.get(), name, authority.get(), authority_key.get());
  const EtcdTlsFiles files{.authority = folder.at(name + "-authority.pem"),
                           .certificate = folder.at(name + ".pem"),
                           .key = folder.at(name + ".key")};
  EXPECT_TRUE(write_text_file_atomically(files.authority, pem_of(authority.get())));
  EXPECT_TRUE(write_text_file_atomically(files.certificate, pem_of(own.get())));
  EXPECT_TRUE(create_secret_file(files.key, pem_of([&](BIO* out) {
                                   return PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr,
                                                                   0, nullptr, nullptr);
                                 })));
  return files;
}

}  // namespace swarmline
