// What all TLS links of one end share: TLS 1.3 and nothing else, both ends' certificates, no
// sessions, no early data, ALPN. For the files of this folder.
//   Certificates are known by the hash of their key alone, since TLS itself has its sender prove
//   that it holds the key: who signed one is not looked at, and its comment, the vouchers, is the
//   guard's.
//   Secrets:   OpenSSL tells a link's stream what it would log for SSLKEYLOGFILE; they go nowhere
//              else.
//   Ownership: SSLs made of it outlive it at will; streams share it. Thread: control thread;
//              lend() and give_back() any. Errors: none but of a broken OpenSSL (CHECK). Bounds:
//              kSparesMax buffers of kBatchBytes that nobody uses. Source: RFC 8446; OpenSSL 3.0.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
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

  // Memory of kBatchBytes that links lend each other: few hold anything at any time.
  static constexpr std::size_t kBatchBytes = 256 * 1024;
  static constexpr std::size_t kSparesMax = 8;
  Buffer lend();
  void give_back(Buffer buffer);

 private:
  ssl_ctx_st* context_;
  std::mutex spares_mutex_;
  std::vector<Buffer> spares_;
};

}  // namespace swarmline
