// What a web server shows browsers, which know no Ed25519: a P-256 key (ECDSA) and a certificate of
// it, signed by itself, for the names and addresses of this machine.
//   Thread: any. Errors: kCorrupt, with a sentence that begins with `where`. Bounds: kWebHostsMax.
//   Source: OpenSSL 3.0 (EVP_PKEY, X509, PEM); RFC 5280.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace swarmline {

inline constexpr std::size_t kWebHostsMax = 16;
inline constexpr double kWebCertificateSeconds = 397.0 * 86400;  // as long as browsers take one

// PEM of the certificate and of its key (PKCS #8). `hosts`: names or IP literals; those beyond
// kWebHostsMax are left out. `now`: seconds since 1970.
std::string make_web_certificate(const std::vector<std::string>& hosts, double now);

struct WebCertificate {
  std::string fingerprint;  // SHA-256 as browsers show it: "AB:CD:..."
  double expires = 0;       // seconds since 1970
};
Result<WebCertificate> read_web_certificate(std::string_view pem, std::string_view where);

}  // namespace swarmline
