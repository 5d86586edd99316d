#include "engine/identity/web_certificate.h"

#include <array>
#include <ctime>
#include <memory>

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
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

using Names = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>>;

constexpr long kClockSkewSeconds = 3600;
constexpr const char* kSubject = "swarmline";

GENERAL_NAME* name_of(const std::string& host) {
  GENERAL_NAME* const name = GENERAL_NAME_new();
  SWARMLINE_CHECK(name != nullptr);
  if (ASN1_OCTET_STRING* const ip = a2i_IPADDRESS(host.c_str()); ip != nullptr) {
    GENERAL_NAME_set0_value(name, GEN_IPADD, ip);
    return name;
  }
  ERR_clear_error();  // it is no address, but a name
  ASN1_IA5STRING* const dns = ASN1_IA5STRING_new();
  SWARMLINE_CHECK(dns != nullptr &&
                  ASN1_STRING_set(dns, host.data(), static_cast<int>(host.size())));
  GENERAL_NAME_set0_value(name, GEN_DNS, dns);
  return name;
}

bool add_hosts(X509* certificate, const std::vector<std::string>& hosts) {
  const Names names(GENERAL_NAMES_new());
  for (std::size_t i = 0; i < hosts.size() && i < kWebHostsMax; ++i)
    if (sk_GENERAL_NAME_push(names.get(), name_of(hosts[i])) == 0) return false;
  return hosts.empty() || X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0,
                                            X509V3_ADD_DEFAULT) == 1;
}

// No two certificates of one name have the same number: browsers refuse that.
bool set_serial(X509* certificate) {
  const std::string random = random_secret(8);
  std::uint64_t number = 1;
  for (const char c : random) number = number << 7 | (static_cast<unsigned char>(c) & 0x7F);
  return ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), number) == 1;
}

std::string text_of(BIO* bio) {
  char* start = nullptr;
  const long size = BIO_get_mem_data(bio, &start);
  std::string text(start, static_cast<std::size_t>(size));
  OPENSSL_cleanse(start, static_cast<std::size_t>(size));
  return text;
}

double seconds_of(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<double>(timegm(&parts)) : 0;
}

}  // namespace

std::string make_web_certificate(const std::vector<std::string>& hosts, double now) {
  const OwnedKey key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
  const OwnedCertificate certificate(X509_new());
  X509* const x509 = certificate.get();
  SWARMLINE_CHECK(key && x509 != nullptr);
  X509_NAME* const name = X509_get_subject_name(x509);
  const auto begins = static_cast<std::time_t>(now) - kClockSkewSeconds;
  const auto ends = static_cast<std::time_t>(now + kWebCertificateSeconds) - 2 * kClockSkewSeconds;
  const bool made =
      X509_set_version(x509, kX509Version3) == 1 && set_serial(x509) &&
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, bytes_of(kSubject), -1, -1, 0) == 1 &&
      X509_set_issuer_name(x509, name) == 1 &&
      ASN1_TIME_set(X509_getm_notBefore(x509), begins) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(x509), ends) != nullptr &&
      X509_set_pubkey(x509, key.get()) == 1 && add_hosts(x509, hosts) &&
      X509_sign(x509, key.get(), EVP_sha256()) > 0;
  SWARMLINE_CHECK(made);
  const OwnedBio pem(BIO_new(BIO_s_mem()));
  SWARMLINE_CHECK(PEM_write_bio_X509(pem.get(), x509) == 1 &&
                  PEM_write_bio_PKCS8PrivateKey(pem.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                                nullptr) == 1);
  return text_of(pem.get());
}

Result<WebCertificate> read_web_certificate(std::string_view pem, std::string_view where) {
  const OwnedBio source(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const OwnedCertificate certificate(PEM_read_bio_X509(source.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (!certificate || X509_digest(certificate.get(), EVP_sha256(), digest.data(), &size) != 1)
    return fail(ErrorCode::kCorrupt,
                fmt::format("{}: expected a certificate and its key (PEM), found something else; "
                            "remove the file, and another one is made",
                            where));
  WebCertificate read{.fingerprint = {},
                      .expires = seconds_of(X509_get0_notAfter(certificate.get()))};
  for (unsigned int i = 0; i < size; ++i)
    read.fingerprint += fmt::format("{}{:02X}", i == 0 ? "" : ":", digest[i]);
  return read;
}

}  // namespace swarmline
