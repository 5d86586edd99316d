// The bulk of a TcpConnection between keys: sealed and opened by the network's pool, so that the
// control thread only says what and hears how much. At most one of each at a time, so that bytes
// stay in their order; what is sealed, and where it is opened, belongs to the pool meanwhile.
#include <algorithm>
#include <cerrno>
#include <limits.h>
#include <sys/uio.h>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>

#include "engine/net/tcp/tcp_connection.h"

namespace swarmline {
namespace asio = boost::asio;
namespace {

// What one call of the pool moves, so that one link does not keep others from it.
constexpr std::size_t kElsewhereBytesMax = 2 * kMiB;
constexpr unsigned kPoolThreadsMin = 2, kPoolThreadsMax = 4;

struct Sealed {
  std::size_t bytes = 0;
  int error = 0;
};

Sealed seal(TlsStream& stream, std::span<struct iovec> parts) {
  Sealed sealed;
  while (!parts.empty() && sealed.bytes < kElsewhereBytesMax) {
    const ssize_t sent = stream.send(parts.data(), parts.size());
    if (sent < 0) {
      sealed.error = errno;
      break;
    }
    auto taken = static_cast<std::size_t>(sent);
    sealed.bytes += taken;
    while (!parts.empty() && taken >= parts.front().iov_len) {
      taken -= parts.front().iov_len;
      parts = parts.subspan(1);
    }
    if (parts.empty()) break;
    parts.front() = {static_cast<char*>(parts.front().iov_base) + taken,
                     parts.front().iov_len - taken};
  }
  return sealed;
}

}  // namespace

asio::thread_pool& TcpShared::sealers() {
  if (!pool)
    pool.emplace(
        std::clamp(std::thread::hardware_concurrency() / 2, kPoolThreadsMin, kPoolThreadsMax));
  return *pool;
}

void TcpConnection::seal_elsewhere() {
  flush_pending_ = true;  // until it is sealed
  ++elsewhere_;
  std::array<struct iovec, IOV_MAX> parts;
  const std::size_t count = gather(parts.data());
  asio::post(
      shared_->sealers(),
      [self = shared_from_this(), home = socket_.get_executor(),
       parts = std::vector(parts.begin(), parts.begin() + static_cast<long>(count))]() mutable {
        const Sealed done = seal(*self->secured_->stream, parts);
        asio::post(home, [self = std::move(self), done] {
          HandlerScope scope(self->shared_->runtime);
          self->sealed(done.bytes, done.error);
        });
      });
}

void TcpConnection::sealed(std::size_t bytes, int error) {
  flush_pending_ = false;
  if (came_home_too_late()) return;
  written(bytes);
  if (error == 0) return flush();
  not_written(error);
}

bool TcpConnection::opens_elsewhere(const Space& to) const {
  return secured_ && to.bytes > kOpenedHereBytesMax &&
         secured_->stream->waiting_bytes() > kOpenedHereBytesMax;
}

void TcpConnection::open_elsewhere(Space to) {
  ++elsewhere_;
  if (to.parts[0].iov_len > kElsewhereBytesMax) {
    to.parts[0].iov_len = to.bytes = kElsewhereBytesMax;
    to.count = 1;
  }
  asio::post(shared_->sealers(),
             [self = shared_from_this(), home = socket_.get_executor(), to]() mutable {
               Came came = self->bring(to);
               asio::post(home, [self = std::move(self), came = std::move(came)] {
                 HandlerScope scope(self->shared_->runtime);
                 self->opened(came);
               });
             });
}

void TcpConnection::opened(const Came& came) {
  if (came_home_too_late()) return;
  if (took(came)) read();
}

bool TcpConnection::came_home_too_late() {
  --elsewhere_;
  if (gone_ && elsewhere_ == 0) let_go();
  return gone_;
}

}  // namespace swarmline
