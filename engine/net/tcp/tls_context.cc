#include "engine/net/tcp/tls_context.h"

#include <utility>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include "base/check.h"
#include "engine/net/link_guard.h"
#include "engine/net/tcp/tls_stream.h"

namespace swarmline {
namespace {

constexpr long kCertificateBytesMax = 4096;  // a self-signed one has 300, and its vouchers
// AES-GCM first: the processors that this runs on have instructions for it.
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr std::uint64_t kOptions =
    SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF;

// As ALPN writes a list of one protocol (RFC 7301).
std::string protocol_list() {
  return std::string(1, static_cast<char>(kTlsProtocol.size())) + std::string(kTlsProtocol);
}

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* offered, unsigned int offered_size, void*) {
  const std::string ours = protocol_list();
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, reinterpret_cast<const unsigned char*>(ours.data()),
                            static_cast<unsigned int>(ours.size()), offered,
                            offered_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  // It points into `ours`, which goes.
  *out = reinterpret_cast<const unsigned char*>(kTlsProtocol.data());
  return SSL_TLSEXT_ERR_OK;
}

std::string vouchers_of(const X509* certificate) {
  auto* const text = static_cast<ASN1_IA5STRING*>(
      X509_get_ext_d2i(certificate, NID_netscape_comment, nullptr, nullptr));
  if (text == nullptr) return {};
  std::string vouchers(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                       static_cast<std::size_t>(ASN1_STRING_length(text)));
  ASN1_IA5STRING_free(text);
  return vouchers.size() <= kLinkVouchersMax ? vouchers : std::string();
}

int check_certificate(X509_STORE_CTX* store, void*) {
  auto* ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* stream = static_cast<TlsStream*>(SSL_get_app_data(ssl));
  const X509* certificate = X509_STORE_CTX_get0_cert(store);
  const EVP_PKEY* key = certificate == nullptr ? nullptr : X509_get0_pubkey(certificate);
  std::string raw(kPublicKeyBytes, '\0');
  std::size_t size = raw.size();
  const bool ed25519 =
      key != nullptr && EVP_PKEY_get_id(key) == EVP_PKEY_ED25519 &&
      EVP_PKEY_get_raw_public_key(key, reinterpret_cast<unsigned char*>(raw.data()), &size) == 1;
  if (ed25519 && stream->shown(raw, vouchers_of(certificate))) return 1;
  X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
  return 0;
}

void tell_secret(const SSL* ssl, const char* line) {
  static_cast<TlsStream*>(SSL_get_app_data(ssl))->learned(line);
}

void set_up(SSL_CTX* context, const Identity& identity, std::string_view vouchers) {
  const std::string certificate = identity.self_signed_certificate(vouchers);
  const std::string protocols = protocol_list();
  SSL_CTX_set_options(context, kOptions);
  const bool made =
      SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_ciphersuites(context, kCiphers) == 1 &&
      SSL_CTX_set1_groups_list(context, "X25519") == 1 &&
      SSL_CTX_set1_sigalgs_list(context, "ed25519") == 1 &&
      SSL_CTX_use_certificate_ASN1(context, static_cast<int>(certificate.size()),
                                   reinterpret_cast<const unsigned char*>(certificate.data())) ==
          1 &&
      SSL_CTX_use_PrivateKey(context, identity.handle()) == 1 &&
      SSL_CTX_set_num_tickets(context, 0) == 1 &&
      SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(protocols.data()),
                              static_cast<unsigned int>(protocols.size())) == 0;
  SWARMLINE_CHECK(made);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_cert_verify_callback(context, check_certificate, nullptr);
  SSL_CTX_set_max_cert_list(context, kCertificateBytesMax);
  SSL_CTX_set_keylog_callback(context, tell_secret);
}

}  // namespace

TlsContext::TlsContext(const Identity& identity, std::string_view vouchers)
    : context_(SSL_CTX_new(TLS_method())) {
  SWARMLINE_CHECK(context_ != nullptr && vouchers.size() <= kLinkVouchersMax);
  set_up(context_, identity, vouchers);
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
}

ssl_st* TlsContext::make_link(bool dials) const {
  SSL* const link = SSL_new(context_);
  SWARMLINE_CHECK(link != nullptr);
  dials ? SSL_set_connect_state(link) : SSL_set_accept_state(link);
  return link;
}

Buffer TlsContext::lend() {
  {
    const std::lock_guard lock(spares_mutex_);
    if (!spares_.empty()) {
      Buffer spare = std::move(spares_.back());
      spares_.pop_back();
      return spare;
    }
  }
  return Buffer(kBatchBytes);
}

void TlsContext::give_back(Buffer buffer) {
  const std::lock_guard lock(spares_mutex_);
  if (spares_.size() < kSparesMax) spares_.push_back(std::move(buffer));
}

}  // namespace swarmline
