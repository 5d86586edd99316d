// One TLS link over a connected, non-blocking socket: what goes between a TcpConnection and its
// socket. It calls as the system does, so that the connection's loops stay what they are. OpenSSL
// makes the handshake; then its secrets go to a record layer of our own (tls_records.h).
//   Sealing: a payload's bytes are sealed from where they lie into a buffer, which leaves by one
//            system call for many records.
//   Opening: from the buffer of one system call straight to where the bytes belong.
//   Ends:    a stream that ends without TLS's own farewell has ended all the same: a frame says how
//            long it is, so that nothing can be cut off unseen.
//   Thread:  the handshake on the control thread. After it one at a time for each direction: the
//            two share nothing but a flag.
//   Errors:  as of the system calls: -1 and errno; EBADMSG: bytes that are not what the other end
//            sent, or no TLS. problem() has a sentence, of the handshake or of what was received.
//   Bounds:  TlsContext::kBatchBytes sealed and not sent yet, and as many received and not opened;
//            neither where there are none. One record that was opened and has no room yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/bytes.h"
#include "engine/identity/identity.h"
#include "engine/net/link_guard.h"
#include "engine/net/tcp/tls_context.h"
#include "engine/net/tcp/tls_records.h"

struct bio_st;
struct iovec;

namespace swarmline {

class TlsStream {
 public:
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
  const std::string& binding() const { return binding_; }
  const std::string& vouchers() const { return vouchers_; }
  // What OpenSSL says, within shake(): the key of the certificate that is shown, false: it is not
  // to be taken; a secret in the words of SSLKEYLOGFILE.
  bool shown(const std::string& public_key, std::string vouchers);
  void learned(std::string_view line);

  // ---- Receiving ----
  // How many bytes were put into the parts, whose sizes are `count`'s; 0: the stream has ended.
  ssize_t receive(const iovec* parts, std::size_t count);
  // The socket need not become readable for receive() to have something to say.
  bool has_more() const;
  std::size_t waiting_bytes() const;  // that have come, as far as is known, and are not opened yet
  const std::string& problem() const { return problem_; }

  // ---- Sending ----
  // How many bytes of the parts were taken; they are sealed, and some may wait. EAGAIN: they do,
  // and nothing was taken.
  ssize_t send(const iovec* parts, std::size_t count);
  bool holds_unsent() const { return sent_ < sealed_bytes_; }
  ssize_t send_sealed();  // -1: errno; else nothing is held any more

 private:
  friend struct TlsBio;
  struct Space;
  int take_over();
  int explain(int result);  // errno of what SSL_get_error says
  ssize_t deliver(Space& space);
  ssize_t fill(std::size_t room);
  ssize_t open_record(Space& space, std::size_t record_bytes);
  bool knows_more() const;  // of what it has received
  ssize_t is_corrupt(const std::string& problem);
  std::size_t seal(const iovec* parts, std::size_t count);

  std::shared_ptr<TlsContext> context_;
  ssl_st* link_;  // until the handshake is done
  const bool dials_;
  const int socket_;
  const LinkGuard* guard_;  // asked within shake()
  const std::optional<KeyHash> pinned_;
  std::string public_key_, vouchers_, binding_;
  std::string secrets_[2];  // of the one that dials, and the other
  int socket_error_ = 0;    // of the handshake
  std::string problem_;

  std::optional<TlsOpener> opener_;
  Buffer received_;                         // none where it holds nothing
  std::size_t begin_ = 0, end_ = 0;         // what of it is not opened yet
  Buffer opened_;                           // a record for which there was no room
  std::size_t taken_ = 0, opened_end_ = 0;  // of it
  int barren_ = 0;                          // records without content, one after the other
  bool ended_ = false;                      // the socket has, or the other end said so

  std::optional<TlsSealer> sealer_;
  std::vector<BytesView> pieces_;  // of a record
  Buffer sealed_;                  // on its way to the socket; none where it holds nothing
  std::size_t sealed_bytes_ = 0, sent_ = 0;

  std::atomic<bool> key_wanted_ = false;  // the other end asked for the next one
};

}  // namespace swarmline
