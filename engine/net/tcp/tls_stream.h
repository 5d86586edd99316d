// One TLS link over a connected, non-blocking socket: what goes between a TcpConnection and its
// socket. It calls as the system does, so that the connection's loops stay what they are.
//   Sealing: records of at most 16 KiB go into a buffer of ours, which leaves by one system call
//            for many; what a payload's bytes cost is one pass that seals them.
//   Ends:    a stream that ends without TLS's own farewell has ended all the same: a frame says how
//            long it is, so that nothing can be cut off unseen.
//   Thread:  control thread. Errors: as of the system calls: -1 and errno; EBADMSG: bytes that are
//            not what the other end sent, or no TLS. problem() has a sentence.
//   Bounds:  kSealedBytesMax sealed and not sent yet; OpenSSL's read buffer of 128 KiB, given back
//            when it is empty.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>

#include "engine/identity/identity.h"
#include "engine/net/link_guard.h"
#include "engine/net/tcp/tls_context.h"

struct bio_st;
struct iovec;

namespace swarmline {

class TlsStream {
 public:
  static constexpr std::size_t kSealedBytesMax = 256 * 1024;

  // `pinned`: no other key than this is taken, or one for which the guard has a voucher.
  TlsStream(std::shared_ptr<TlsContext> context, int socket, bool dials, const LinkGuard& guard,
            std::optional<KeyHash> pinned);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // ---- The handshake ----
  // 1: done; 0: the other end has to say something, or what is sealed has to leave; -1: it failed.
  int shake();
  // After it: the other end's key, and what only both ends of this link have (link_guard.h).
  const std::string& public_key() const { return public_key_; }
  const std::string& vouchers() const { return vouchers_; }
  std::string binding() const;
  // Of the certificate that is shown, within shake(); false: it is not to be taken.
  bool shown(const std::string& public_key, std::string vouchers);

  // ---- Bytes ----
  // How many bytes were put into the parts, whose sizes are `count`'s; 0: the stream has ended.
  ssize_t receive(const iovec* parts, std::size_t count);
  // How many bytes of the parts were taken; they are sealed, and some may wait. EAGAIN: they do,
  // and nothing was taken.
  ssize_t send(const iovec* parts, std::size_t count);
  bool holds_unsent() const { return sent_ < sealed_.size(); }
  ssize_t send_sealed();  // -1: errno; else nothing is held any more
  const std::string& problem() const { return problem_; }

 private:
  friend struct TlsBio;
  std::size_t seal(const iovec* parts, std::size_t count);
  bool seal_record(const void* data, std::size_t size);
  ssize_t open_into(std::byte* to, std::size_t size);
  int explain(int result);  // errno of what SSL_get_error says

  std::shared_ptr<TlsContext> context_;
  ssl_st* link_;
  const int socket_;
  const LinkGuard* guard_;  // asked within shake()
  const std::optional<KeyHash> pinned_;
  std::string public_key_;
  std::string vouchers_;
  std::string sealed_;    // on its way to the socket
  std::size_t sent_ = 0;  // of it
  int socket_error_ = 0;
  bool ended_ = false;  // the socket has
  std::string problem_;
};

}  // namespace swarmline
