#include "engine/net/tcp/tls_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/check.h"

namespace swarmline {
namespace {

constexpr std::size_t kRecordBytes = 16 * 1024;  // the most that one holds (RFC 8446, 5.1)
constexpr std::string_view kBindingLabel = "EXPORTER-Channel-Binding";
constexpr std::size_t kBindingBytes = 32;

}  // namespace

// How OpenSSL reaches the socket: without signals, and writing into our buffer.
struct TlsBio {
  static TlsStream& stream(BIO* bio) { return *static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int write(BIO* bio, const char* data, int size) {
    stream(bio).sealed_.append(data, static_cast<std::size_t>(size));
    return size;
  }

  static int read(BIO* bio, char* data, int size) {
    BIO_clear_retry_flags(bio);
    TlsStream& self = stream(bio);
    ssize_t got = 0;
    do {
      got = ::recv(self.socket_, data, static_cast<std::size_t>(size), MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      BIO_set_retry_read(bio);
    } else if (got < 0) {
      self.socket_error_ = errno;
    } else if (got == 0) {
      self.ended_ = true;
    }
    return static_cast<int>(got);
  }

  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return stream(bio).ended_ ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static int created(BIO* bio) {
    BIO_set_init(bio, 1);
    return 1;
  }

  static BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* fresh = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "swarmline");
      BIO_meth_set_write(fresh, write);
      BIO_meth_set_read(fresh, read);
      BIO_meth_set_ctrl(fresh, control);
      BIO_meth_set_create(fresh, created);
      return fresh;
    }();
    return made;
  }
};

TlsStream::TlsStream(std::shared_ptr<TlsContext> context, int socket, bool dials,
                     const LinkGuard& guard, std::optional<KeyHash> pinned)
    : context_(std::move(context)),
      link_(context_->make_link(dials)),
      socket_(socket),
      guard_(&guard),
      pinned_(pinned) {
  BIO* const bio = BIO_new(TlsBio::method());
  SWARMLINE_CHECK(bio != nullptr);
  BIO_set_data(bio, this);
  SSL_set_bio(link_, bio, bio);  // it goes with the link
  SSL_set_app_data(link_, this);
}

TlsStream::~TlsStream() {
  SSL_free(link_);
}

// ---- The handshake ------------------------------------------------------------------------------

int TlsStream::shake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(link_);
  if (result != 1) {
    const int error = explain(result);
    if (error == EAGAIN) return 0;
    if (problem_.empty()) problem_ = "it closed the connection within the handshake";
    return -1;
  }
  const unsigned char* protocol = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(link_, &protocol, &size);
  if (std::string_view(reinterpret_cast<const char*>(protocol), size) == kTlsProtocol) return 1;
  problem_ = fmt::format("it does not speak {}", kTlsProtocol);
  return -1;
}

bool TlsStream::shown(const std::string& public_key, std::string vouchers) {
  const auto hash = hash_of_public_key(public_key);
  if (!hash) return false;
  if (pinned_ && *hash != *pinned_ && !guard_->vouched(*pinned_, *hash, vouchers)) {
    problem_ = fmt::format(
        "the key there is {}, expected {}: it is another run's, or somebody is in between, or the "
        "run's key was changed a while ago: then its new join string is needed",
        short_text(*hash), short_text(*pinned_));
    return false;
  }
  public_key_ = public_key;
  vouchers_ = std::move(vouchers);
  return true;
}

std::string TlsStream::binding() const {
  std::string binding(kBindingBytes, '\0');
  SWARMLINE_CHECK(SSL_export_keying_material(
                      link_, reinterpret_cast<unsigned char*>(binding.data()), binding.size(),
                      kBindingLabel.data(), kBindingLabel.size(), nullptr, 0, 0) == 1);
  return binding;
}

// ---- Receiving ----------------------------------------------------------------------------------

ssize_t TlsStream::receive(const iovec* parts, std::size_t count) {
  ssize_t total = 0;
  for (const iovec& part : std::span(parts, count)) {
    for (std::size_t filled = 0; filled < part.iov_len;) {
      const ssize_t got =
          open_into(static_cast<std::byte*>(part.iov_base) + filled, part.iov_len - filled);
      if (got <= 0) return total > 0 ? total : got;  // the next call meets it again
      filled += static_cast<std::size_t>(got);
      total += got;
    }
  }
  return total;
}

ssize_t TlsStream::open_into(std::byte* to, std::size_t size) {
  ERR_clear_error();
  std::size_t got = 0;
  const int result = SSL_read_ex(link_, to, size, &got);
  if (result == 1) return static_cast<ssize_t>(got);
  const int error = explain(result);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// ---- Sending ------------------------------------------------------------------------------------

ssize_t TlsStream::send(const iovec* parts, std::size_t count) {
  if (holds_unsent() && send_sealed() < 0) return -1;
  const std::size_t taken = seal(parts, count);
  if (!problem_.empty()) {
    errno = EBADMSG;
    return -1;
  }
  if (send_sealed() < 0 && (taken == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))) return -1;
  return static_cast<ssize_t>(taken);
}

// Whole records, the last one excepted.
std::size_t TlsStream::seal(const iovec* parts, std::size_t count) {
  if (sealed_.empty() && sealed_.capacity() < kRecordBytes) sealed_.swap(context_->spare_sealed);
  std::vector<std::byte>& gathered = context_->gathered;
  std::size_t taken = 0;
  gathered.clear();
  const auto seal_gathered = [&] {
    const bool sealed = gathered.empty() || seal_record(gathered.data(), gathered.size());
    gathered.clear();
    return sealed;
  };
  for (const iovec& part : std::span(parts, count)) {
    const auto* data = static_cast<const std::byte*>(part.iov_base);
    for (std::size_t at = 0; at < part.iov_len;) {
      if (sealed_.size() >= kSealedBytesMax) return taken - gathered.size();
      const std::size_t rest = part.iov_len - at;
      if (gathered.empty() && rest >= kRecordBytes) {
        if (!seal_record(data + at, kRecordBytes)) return taken;
        at += kRecordBytes;
        taken += kRecordBytes;
        continue;
      }
      const std::size_t more = std::min(rest, kRecordBytes - gathered.size());
      gathered.insert(gathered.end(), data + at, data + at + more);
      at += more;
      taken += more;
      if (gathered.size() == kRecordBytes && !seal_gathered()) return taken;
    }
  }
  seal_gathered();
  return taken;
}

bool TlsStream::seal_record(const void* data, std::size_t size) {
  ERR_clear_error();
  std::size_t put = 0;
  const int result = SSL_write_ex(link_, data, size, &put);
  if (result == 1 && put == size) return true;
  explain(result);
  if (problem_.empty()) problem_ = "a record could not be sealed";
  return false;
}

ssize_t TlsStream::send_sealed() {
  while (holds_unsent()) {
    const ssize_t sent = ::send(socket_, sealed_.data() + sent_, sealed_.size() - sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return -1;
    sent_ += static_cast<std::size_t>(sent);
  }
  sealed_.clear();
  sent_ = 0;
  if (context_->spare_sealed.capacity() < sealed_.capacity()) sealed_.swap(context_->spare_sealed);
  return 0;
}

// ---- Errors -------------------------------------------------------------------------------------

int TlsStream::explain(int result) {
  switch (SSL_get_error(link_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      if (socket_error_ != 0) return socket_error_;
      [[fallthrough]];
    default:
      break;
  }
  const unsigned long error = ERR_get_error();
  const char* reason = ERR_reason_error_string(error);
  if (problem_.empty()) problem_ = reason == nullptr ? "it ended the TLS handshake" : reason;
  ERR_clear_error();
  return EBADMSG;
}

}  // namespace swarmline
