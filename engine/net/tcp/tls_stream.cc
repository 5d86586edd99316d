#include "engine/net/tcp/tls_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/check.h"

namespace swarmline {
namespace {

constexpr std::string_view kBindingLabel = "EXPORTER-Channel-Binding";
constexpr std::size_t kBindingBytes = 32;
constexpr std::string_view kSecretLabels[] = {"CLIENT_TRAFFIC_SECRET_0 ",
                                              "SERVER_TRAFFIC_SECRET_0 "};
constexpr int kBarrenRecordsMax = 32;         // one after the other; OpenSSL bears as many
constexpr std::uint32_t kSuiteMask = 0xFFFF;  // of OpenSSL's number for it

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

ssize_t receive_some(int socket, void* to, std::size_t size) {
  ssize_t got = 0;
  do {
    got = ::recv(socket, to, size, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  return got;
}

int digit(char c) {
  return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

std::string from_hex(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 2);  // grown, it would leave parts of a secret in freed memory
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1])));
  return bytes;
}

}  // namespace

// How OpenSSL reaches the socket within the handshake: without signals, not a byte beyond the
// record that it wants, and writing into our buffer.
struct TlsBio {
  static TlsStream& stream(BIO* bio) { return *static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int write(BIO* bio, const char* data, int size) {
    TlsStream& self = stream(bio);
    const auto bytes = static_cast<std::size_t>(size);
    if (self.sealed_.empty()) self.sealed_ = self.context_->lend();
    if (self.sealed_.size() - self.sealed_bytes_ < bytes) return -1;
    std::memcpy(self.sealed_.data() + self.sealed_bytes_, data, bytes);
    self.sealed_bytes_ += bytes;
    return size;
  }

  static int read(BIO* bio, char* data, int size) {
    BIO_clear_retry_flags(bio);
    TlsStream& self = stream(bio);
    const ssize_t got = receive_some(self.socket_, data, static_cast<std::size_t>(size));
    if (got < 0 && would_block(errno)) {
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
      dials_(dials),
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
  for (std::string& secret : secrets_) OPENSSL_cleanse(secret.data(), secret.size());
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
  if (std::string_view(reinterpret_cast<const char*>(protocol), size) == kTlsProtocol)
    return take_over();
  problem_ = fmt::format("it does not speak {}", kTlsProtocol);
  return -1;
}

// What comes next, either way, is the first record under these secrets: OpenSSL reads no further
// than its handshake, and says nothing after it.
int TlsStream::take_over() {
  binding_.resize(kBindingBytes);
  SWARMLINE_CHECK(SSL_export_keying_material(
                      link_, reinterpret_cast<unsigned char*>(binding_.data()), binding_.size(),
                      kBindingLabel.data(), kBindingLabel.size(), nullptr, 0, 0) == 1);
  if (SSL_has_pending(link_) != 0) {
    problem_ = "its handshake does not end where it ends";
    return -1;
  }
  const auto suite =
      static_cast<TlsSuite>(SSL_CIPHER_get_id(SSL_get_current_cipher(link_)) & kSuiteMask);
  sealer_.emplace(suite, std::move(secrets_[dials_ ? 0 : 1]));
  opener_.emplace(suite, std::move(secrets_[dials_ ? 1 : 0]));
  SSL_free(std::exchange(link_, nullptr));
  return 1;
}

bool TlsStream::shown(const std::string& public_key, std::string vouchers) {
  const auto hash = hash_of_public_key(public_key);
  if (!hash) return false;
  if (const auto may = check_shown_key(*guard_, pinned_, *hash, vouchers); !may) {
    problem_ = may.error().what;
    return false;
  }
  public_key_ = public_key;
  vouchers_ = std::move(vouchers);
  return true;
}

void TlsStream::learned(std::string_view line) {
  for (std::size_t i = 0; i < 2; ++i)
    if (line.starts_with(kSecretLabels[i]))
      secrets_[i] = from_hex(line.substr(line.rfind(' ') + 1));
}

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

// ---- Receiving ----------------------------------------------------------------------------------

// What is left to fill of the parts.
struct TlsStream::Space {
  Space(const iovec* given, std::size_t count) {
    SWARMLINE_CHECK(count <= parts.size());
    for (std::size_t i = 0; i < count; ++i)
      parts[i] = {static_cast<std::byte*>(given[i].iov_base), given[i].iov_len};
  }
  bool touched() const { return begun; }
  std::size_t room() const { return parts[0].size() + parts[1].size(); }
  void filled(std::size_t bytes) {
    begun = begun || bytes > 0;
    for (MutableBytes& part : parts) {
      const std::size_t of_it = std::min(bytes, part.size());
      part = part.subspan(of_it);
      bytes -= of_it;
    }
  }
  std::array<MutableBytes, 2> parts;
  bool begun = false;
};

ssize_t TlsStream::receive(const iovec* parts, std::size_t count) {
  Space space(parts, count);
  const std::size_t room = space.room();
  ssize_t last = 1;
  while (space.room() > 0 && last > 0) last = deliver(space);
  if (begin_ == end_ && !received_.empty()) context_->give_back(std::exchange(received_, Buffer()));
  // What stopped it, the next call meets again.
  return space.room() < room ? static_cast<ssize_t>(room - space.room()) : last;
}

bool TlsStream::has_more() const {
  return taken_ < opened_end_ || !problem_.empty() || ended_ || knows_more();
}

std::size_t TlsStream::waiting_bytes() const {
  int in_socket = 0;
  if (::ioctl(socket_, FIONREAD, &in_socket) != 0) in_socket = 0;
  return end_ - begin_ + static_cast<std::size_t>(in_socket);
}

// Positive: it got further.
ssize_t TlsStream::deliver(Space& space) {
  if (taken_ < opened_end_) {
    const MutableBytes to = space.parts[space.parts[0].empty() ? 1 : 0];
    const std::size_t size = std::min(to.size(), opened_end_ - taken_);
    std::memcpy(to.data(), opened_.data() + taken_, size);
    taken_ += size;
    space.filled(size);
    if (taken_ == opened_end_) opened_ = Buffer();
    return 1;
  }
  if (!problem_.empty()) return is_corrupt(problem_);
  if (end_ - begin_ >= kRecordHeaderBytes) {
    const auto record = TlsOpener::record_bytes(received_.data() + begin_);
    if (!record) return is_corrupt(record.error().what);
    if (*record <= end_ - begin_) return open_record(space, *record);
  }
  if (ended_) return 0;
  return fill(space.room());
}

ssize_t TlsStream::is_corrupt(const std::string& problem) {
  problem_ = problem;
  errno = EBADMSG;
  return -1;
}

ssize_t TlsStream::open_record(Space& space, std::size_t record_bytes) {
  const std::size_t room = TlsOpener::content_room(record_bytes);
  const bool fits = room <= space.room();
  if (!fits && space.touched()) {
    errno = EAGAIN;
    return -1;
  }
  if (!fits) opened_ = Buffer(room);
  const MutableBytes apart = opened_.bytes();
  const std::span<const MutableBytes> to =
      fits ? std::span<const MutableBytes>(space.parts) : std::span(&apart, 1);
  const auto opened = opener_->open({received_.data() + begin_, record_bytes}, to);
  if (!opened) return is_corrupt(opened.error().what);
  begin_ += record_bytes;
  barren_ = opened->bytes > 0 ? 0 : barren_ + 1;
  if (barren_ > kBarrenRecordsMax) return is_corrupt("its TLS records hold nothing");
  if (opened->what == TlsOpener::What::kEnd) ended_ = true;
  if (opened->what == TlsOpener::What::kNextKeyWanted) key_wanted_ = true;
  if (fits) {
    space.filled(opened->bytes);
  } else {
    taken_ = 0;
    opened_end_ = opened->bytes;
  }
  return 1;
}

bool TlsStream::knows_more() const {
  if (end_ - begin_ < kRecordHeaderBytes) return false;
  const auto record = TlsOpener::record_bytes(received_.data() + begin_);
  return !record || *record <= end_ - begin_;
}

// Not much more than there is room for: what comes after it stays with the kernel.
ssize_t TlsStream::fill(std::size_t room) {
  if (received_.empty()) received_ = context_->lend();
  if (begin_ > 0) {
    std::memmove(received_.data(), received_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t records = room / kRecordBytes + 1;
  const std::size_t wanted = std::max(room + records * kRecordAddedBytes, kSealedRecordBytesMax);
  const ssize_t got =
      receive_some(socket_, received_.data() + end_, std::min(wanted, received_.size() - end_));
  if (got == 0) ended_ = true;
  if (got <= 0) return got;
  end_ += static_cast<std::size_t>(got);
  return 1;
}

// ---- Sending ------------------------------------------------------------------------------------

ssize_t TlsStream::send(const iovec* parts, std::size_t count) {
  if (holds_unsent() && send_sealed() < 0) return -1;
  const std::size_t taken = seal(parts, count);
  if (send_sealed() < 0 && (taken == 0 || !would_block(errno))) return -1;
  return static_cast<ssize_t>(taken);
}

// Whole records, the last one excepted, as far as there is room.
std::size_t TlsStream::seal(const iovec* parts, std::size_t count) {
  if (sealed_.empty()) sealed_ = context_->lend();
  std::size_t taken = 0, part = 0, at = 0;
  while (part < count && sealed_.size() - sealed_bytes_ >= TlsSealer::kSealRoomBytes) {
    std::size_t gathered = 0;
    pieces_.clear();
    while (part < count && gathered < kRecordBytes) {
      const std::size_t size = std::min(parts[part].iov_len - at, kRecordBytes - gathered);
      pieces_.emplace_back(static_cast<const std::byte*>(parts[part].iov_base) + at, size);
      gathered += size;
      at += size;
      if (at < parts[part].iov_len) continue;
      ++part;
      at = 0;
    }
    const bool next_key =
        key_wanted_.load(std::memory_order_relaxed) && key_wanted_.exchange(false);
    sealed_bytes_ += sealer_->seal(pieces_, sealed_.data() + sealed_bytes_, next_key);
    taken += gathered;
  }
  return taken;
}

ssize_t TlsStream::send_sealed() {
  while (holds_unsent()) {
    const ssize_t sent =
        ::send(socket_, sealed_.data() + sent_, sealed_bytes_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return -1;
    sent_ += static_cast<std::size_t>(sent);
  }
  sent_ = sealed_bytes_ = 0;
  if (!sealed_.empty()) context_->give_back(std::exchange(sealed_, Buffer()));
  return 0;
}

}  // namespace swarmline
