// What all TLS links of one end share: TLS 1.3 and nothing else, both ends' certificates, no
// sessions, no early data, ALPN. For the files of this folder.
//   Certificates are known by the hash of their key alone, since TLS itself has its sender prove
//   that it holds the key: who signed one is not looked at, and its comment, the vouchers, is the
//   guard's.
//   Ownership: SSLs made of it outlive it at will; streams share it. Thread: control thread.
//              Errors: none but of a broken OpenSSL (CHECK). Source: RFC 8446; OpenSSL 3.0.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/identity/identity.h"

struct ssl_ctx_st;
struct ssl_st;

namespace swarmline {

inline constexpr std::string_view kTlsProtocol = "swarmline/1";  // ALPN

class TlsContext {
 public:
  // `vouchers`: what its certificate says beside the key (link_guard.h).
  explicit TlsContext(const Identity& identity, std::string_view vouchers = {});
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_st* make_link(bool dials) const;  // the caller's

  // Memory that links lend each other: only one of them seals at a time, and few hold anything.
  std::string spare_sealed;
  std::vector<std::byte> gathered;

 private:
  ssl_ctx_st* context_;
};

}  // namespace swarmline
