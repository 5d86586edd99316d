#include "tools/measure/link_yardstick.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/identity/secrets.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {
namespace {

// A stranger's silence is not waited for.
constexpr auto kTokenPatience = std::chrono::seconds(1);
constexpr std::uint64_t kAskEcho = 0, kAskSend = 1, kAskTake = 2;

struct Request {
  std::uint64_t kind, count, bytes;
};

bool read_all(int socket, void* to, std::size_t size) {
  return size == 0 || ::recv(socket, to, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

bool write_all(int socket, const void* from, std::size_t size) {
  const auto* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t sent = ::send(socket, at, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool ask(int socket, const Request& request) {
  return write_all(socket, &request, sizeof(request));
}

void bound_waits(int socket, std::chrono::seconds patience) {
  const timeval time{.tv_sec = patience.count(), .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

void send_at_once(int socket) {
  const int yes = 1;
  SWARMLINE_CHECK(::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) == 0);
}

// Who waits to be asked waits for as long as the other machine is there.
void look_for_other_end(int socket) {
  const int yes = 1, idle_s = 10, pause_s = 5, tries = 4;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &pause_s, sizeof(pause_s));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
}

// What a host and a port are to the system; null: nothing.
using Found = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
Found find(const Address& address, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (::getaddrinfo(address.host.c_str(), port.c_str(), &wanted, &found) != 0) found = nullptr;
  return {found, &::freeaddrinfo};
}

bool serve_request(int socket, const Request& request, Buffer& buffer) {
  if (request.bytes > kSocketMessageBytesMax || request.kind > kAskTake) return false;
  if (buffer.size() != request.bytes) buffer = Buffer::zeroed(request.bytes);
  if (request.kind == kAskEcho)
    return read_all(socket, buffer.data(), buffer.size()) &&
           write_all(socket, buffer.data(), buffer.size());
  for (std::uint64_t i = 0; i < request.count; ++i)
    if (!(request.kind == kAskSend ? write_all(socket, buffer.data(), buffer.size())
                                   : read_all(socket, buffer.data(), buffer.size())))
      return false;
  const char done = 1;
  return request.kind == kAskSend || write_all(socket, &done, 1);
}

}  // namespace

RawServer::RawServer(int socket) : socket_(socket) {
  send_at_once(socket);
  bound_waits(socket, std::chrono::seconds(0));
  look_for_other_end(socket);
  thread_ = std::thread([socket] {
    Request request{};
    Buffer buffer;
    while (read_all(socket, &request, sizeof(request)) && serve_request(socket, request, buffer)) {
    }
    ::shutdown(socket, SHUT_RDWR);
  });
}

RawServer::~RawServer() {
  ::shutdown(socket_, SHUT_RDWR);
  thread_.join();
  ::close(socket_);
}

RawLink::RawLink() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  SWARMLINE_CHECK(::bind(listener, address, size) == 0 && ::listen(listener, 1) == 0 &&
                  ::getsockname(listener, address, &size) == 0);
  near_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  SWARMLINE_CHECK(::connect(near_, address, size) == 0);
  const int far = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  SWARMLINE_CHECK(far >= 0);
  ::close(listener);
  send_at_once(near_);
  far_.emplace(far);
}

RawLink::RawLink(int socket) : near_(socket) {
  send_at_once(near_);
  bound_waits(near_, kSocketPatience);
}

RawLink::~RawLink() {
  ::shutdown(near_, SHUT_RDWR);
  far_.reset();
  ::close(near_);
}

bool RawLink::receive(std::uint64_t count, MutableBytes into) {
  bool good = ask(near_, {.kind = kAskSend, .count = count, .bytes = into.size()});
  for (std::uint64_t i = 0; good && i < count; ++i)
    good = read_all(near_, into.data(), into.size());
  return good;
}

bool RawLink::send(std::uint64_t count, BytesView from) {
  bool good = ask(near_, {.kind = kAskTake, .count = count, .bytes = from.size()});
  for (std::uint64_t i = 0; good && i < count; ++i)
    good = write_all(near_, from.data(), from.size());
  char done = 0;
  return good && read_all(near_, &done, 1);
}

bool RawLink::round_trip(MutableBytes message) {
  return ask(near_, {.kind = kAskEcho, .count = 1, .bytes = message.size()}) &&
         write_all(near_, message.data(), message.size()) &&
         read_all(near_, message.data(), message.size());
}

Result<RawListener> RawListener::open(const std::string& host) {
  const auto failed = [] {
    return fail(ErrorCode::kIo, fmt::format("no port for it: {}", std::strerror(errno)));
  };
  const Found at = find({host, 0}, AI_PASSIVE);
  if (!at) return fail(ErrorCode::kIo, "no port for it at " + host);
  RawListener listener(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (listener.socket_ < 0 || ::bind(listener.socket_, at->ai_addr, at->ai_addrlen) != 0 ||
      ::listen(listener.socket_, SOMAXCONN) != 0 ||
      ::getsockname(listener.socket_, reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return failed();
  listener.port_ =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                        : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  return listener;
}

RawListener::RawListener(RawListener&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), port_(other.port_) {}

RawListener::~RawListener() {
  if (socket_ >= 0) ::close(socket_);
}

std::optional<int> RawListener::accept(std::string_view token) const {
  const AsioRuntime clock;
  const Instant until = clock.now() + kSocketMeetTime;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock.now());
    pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0)
      return std::nullopt;
    const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0 && (errno == ECONNABORTED || errno == EINTR)) continue;
    if (socket < 0) return std::nullopt;  // it would fail again at once
    bound_waits(socket, kTokenPatience);
    std::string said(token.size(), '\0');
    if (read_all(socket, said.data(), said.size()) && equal_in_secret(said, token)) return socket;
    ::close(socket);
  }
}

Result<int> dial_raw_link(const Address& address, std::string_view token) {
  const Found at = find(address, 0);
  const int socket = at ? ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
  if (socket >= 0) bound_waits(socket, kSocketMeetTime);
  if (socket >= 0 && ::connect(socket, at->ai_addr, at->ai_addrlen) == 0 &&
      write_all(socket, token.data(), token.size()))
    return socket;
  const std::string why = at ? std::strerror(errno) : "no such host";
  if (socket >= 0) ::close(socket);
  return fail(ErrorCode::kPeerGone,
              fmt::format("no plain socket to {}: {}", to_string(address), why));
}

}  // namespace swarmline
