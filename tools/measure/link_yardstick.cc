#include "tools/measure/link_yardstick.h"

#include <algorithm>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

namespace swarmline {
namespace {

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

void send_at_once(int socket) {
  const int yes = 1;
  SWARMLINE_CHECK(::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) == 0);
}

}  // namespace

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
  send_at_once(far);
  far_ = std::thread([far] { serve(far); });
}

RawLink::~RawLink() {
  ::shutdown(near_, SHUT_RDWR);
  far_.join();
  ::close(near_);
}

void RawLink::serve(int socket) {
  Request request{};
  Buffer buffer;
  while (read_all(socket, &request, sizeof(request))) {
    if (buffer.size() != request.bytes) buffer = Buffer::zeroed(request.bytes);
    if (request.count == 0 && !read_all(socket, buffer.data(), buffer.size())) break;
    bool sent = true;
    for (std::uint64_t i = 0; sent && i < std::max<std::uint64_t>(request.count, 1); ++i)
      sent = write_all(socket, buffer.data(), buffer.size());
    if (!sent) break;
  }
  ::close(socket);
}

void RawLink::receive(std::uint64_t count, MutableBytes into) {
  const Request request{.count = count, .bytes = into.size()};
  SWARMLINE_CHECK(write_all(near_, &request, sizeof(request)));
  for (std::uint64_t i = 0; i < count; ++i)
    SWARMLINE_CHECK(read_all(near_, into.data(), into.size()));
}

void RawLink::round_trip(MutableBytes message) {
  const Request request{.count = 0, .bytes = message.size()};
  SWARMLINE_CHECK(write_all(near_, &request, sizeof(request)) &&
                  write_all(near_, message.data(), message.size()) &&
                  read_all(near_, message.data(), message.size()));
}

}  // namespace swarmline
