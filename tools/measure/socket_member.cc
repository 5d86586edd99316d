#include "tools/measure/socket_member.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/units.h"
#include "engine/net/network.h"
#include "engine/runtime/asio_runtime.h"
#include "tools/measure/member_line.h"

namespace swarmline {
namespace {

constexpr std::size_t kPieceBytes = 256 * kKiB;  // of one call; the fastest of 64 KiB to 1 MiB
constexpr int kPatienceMs = 60'000;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

class SocketMember {
 public:
  explicit SocketMember(const SocketMemberSpec& spec)
      : spec_(spec),
        share_(2 * spec.bytes / spec.members),
        input_(Buffer::zeroed(spec.bytes)),
        output_(Buffer::zeroed(spec.bytes)) {}
  ~SocketMember() {
    for (const Other& other : others_) ::close(other.socket);
  }

  void serve(int line) {
    const int listener = listen(line);
    const auto addresses = read_line(line);
    if (!addresses) return;
    meet(listener, *addresses);
    run(1);
    write_line(line, "ready");
    while (const auto word = read_line(line)) {
      std::uint32_t rounds = 0;
      std::from_chars(word->data(), word->data() + word->size(), rounds);
      const double cpu = own_cpu_seconds();
      const Instant start = clock_.now();
      run(rounds);
      write_line(line, fmt::format("{} {} {}", to_seconds(clock_.now() - start),
                                   own_cpu_seconds() - cpu, rounds * share_ * others_.size()));
    }
  }

 private:
  struct Other {
    int socket = -1;
    std::uint64_t sent = 0, got = 0;
  };

  static int listen(int line) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    const bool listens = listener >= 0 && ::bind(listener, any, size) == 0 &&
                         ::listen(listener, SOMAXCONN) == 0 &&
                         ::getsockname(listener, any, &size) == 0;
    SWARMLINE_CHECK(listens);
    write_line(line, std::to_string(ntohs(address.sin_port)));
    return listener;
  }

  // Each dials those before it.
  void meet(int listener, const std::string& addresses) {
    std::istringstream words(addresses);
    std::string word;
    for (std::uint32_t other = 0; other < spec_.rank && words >> word; ++other) {
      const std::uint16_t port = parse_address(word).value().port;
      const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = loopback(port);
      const bool connected =
          ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
      SWARMLINE_CHECK(connected);
      keep(socket);
    }
    while (others_.size() + 1 < spec_.members)
      keep(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    ::close(listener);
  }

  void keep(int socket) {
    const int on = 1;
    const bool is_set = ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
                        ::fcntl(socket, F_SETFL, O_NONBLOCK) == 0;
    SWARMLINE_CHECK(is_set);
    others_.push_back({.socket = socket});
  }

  void run(std::uint32_t rounds) {
    for (; rounds > 0; --rounds) {
      for (Other& other : others_) other.sent = other.got = 0;
      while (!done())
        if (!move()) wait();
    }
  }
  bool done() const {
    return std::ranges::all_of(others_, [this](const Other& other) {
      return other.sent == share_ && other.got == share_;
    });
  }

  // False: no socket took or had anything.
  bool move() {
    bool moved = false;
    for (std::size_t i = 0; i < others_.size(); ++i) {
      Other& other = others_[i];
      const auto piece = [&](Buffer& of, std::uint64_t done) {
        const std::uint64_t at = (i * share_ + done) % of.size();
        const std::uint64_t most = std::min<std::uint64_t>(share_ - done, of.size() - at);
        return of.bytes().subspan(at, std::min<std::uint64_t>(most, kPieceBytes));
      };
      const MutableBytes out = piece(input_, other.sent), in = piece(output_, other.got);
      if (!out.empty())
        moved |= count(::send(other.socket, out.data(), out.size(), MSG_NOSIGNAL), other.sent);
      if (!in.empty()) moved |= count(::recv(other.socket, in.data(), in.size(), 0), other.got);
    }
    return moved;
  }
  // False: none for now.
  static bool count(ssize_t bytes, std::uint64_t& sum) {
    const bool later = bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    SWARMLINE_CHECK_MSG(bytes > 0 || later, "another one ended");
    if (!later) sum += static_cast<std::uint64_t>(bytes);
    return !later;
  }

  void wait() const {
    std::vector<pollfd> polled;
    for (const Other& other : others_) {
      const int events = (other.sent < share_ ? POLLOUT : 0) | (other.got < share_ ? POLLIN : 0);
      if (events != 0)
        polled.push_back({.fd = other.socket, .events = static_cast<short>(events), .revents = 0});
    }
    const int ready = ::poll(polled.data(), polled.size(), kPatienceMs);
    SWARMLINE_CHECK_MSG(ready != 0, "another one said nothing for a minute");
  }

  const SocketMemberSpec spec_;
  const std::uint64_t share_;
  Buffer input_, output_;
  AsioRuntime clock_;
  std::vector<Other> others_;
};

}  // namespace

void serve_socket_member(const SocketMemberSpec& spec, int line) {
  SocketMember(spec).serve(line);
}

}  // namespace swarmline
