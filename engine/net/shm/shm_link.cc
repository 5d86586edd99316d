#include "engine/net/shm/shm_link.h"

#include <array>
#include <cerrno>
#include <sys/socket.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "engine/runtime/asio_access.h"

namespace swarmline {
namespace asio = boost::asio;
namespace {

// Copied before the other end may go on with it, so that both copy at a time.
constexpr std::size_t kShmStepBytes = 64 * kKiB;
// Of a payload, before its user hears of them while more is there.
constexpr std::size_t kShmReportBytes = 1 * kMiB;

}  // namespace

ShmLink::ShmLink(AsioRuntime& runtime, Socket socket, std::unique_ptr<ShmSegment> segment,
                 bool first)
    : runtime_(runtime),
      socket_(std::move(socket)),
      segment_(std::move(segment)),
      writer_(segment_->head(first), segment_->ring(first)),
      reader_(segment_->head(!first), segment_->ring(!first)) {}

void ShmLink::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  wait_for_ring();
}

void ShmLink::send(std::vector<SharedBytes> payload) {
  if (closed_) return;
  leaving_.push_back({.parts = std::move(payload)});
  // As soon as it is there the other end can copy it.
  if (leaving_.size() == 1) write_from(leaving_.front());
  post_work();
}

void ShmLink::receive(Buffer into) {
  if (closed_) return;
  asked_.push_back(std::move(into));
  post_work();
}

void ShmLink::post_work() {
  if (std::exchange(work_posted_, true)) return;
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->work_posted_ = false;
    if (self->closed_) return;
    HandlerScope scope(self->runtime_);
    self->work();
  });
}

void ShmLink::wait_for_ring() {
  socket_.async_wait(Socket::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (error || self->closed_) return;
                       HandlerScope scope(self->runtime_);
                       self->rung();
                     });
}

// Sound or end of the other end. What it had written before is there all the same.
void ShmLink::rung() {
  const bool lives = empty_socket();
  work();
  if (closed_) return;
  if (lives) return wait_for_ring();
  while (!closed_ && read_some() > 0) {
  }
  if (!closed_) end({ErrorCode::kPeerGone, "the other end closed it"});
}

// False: the other end is no more.
bool ShmLink::empty_socket() {
  std::array<char, 256> rings;
  while (true) {
    const ssize_t got = ::recv(socket_.native_handle(), rings.data(), rings.size(), MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

// A socket that takes no more holds many rings that were not heard yet.
void ShmLink::ring() {
  const char one = 0;
  [[maybe_unused]] const ssize_t sent =
      ::send(socket_.native_handle(), &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void ShmLink::work() {
  std::size_t moved = 0;
  while (!closed_) {
    if (moved >= kShmHandlerBytesMax) return post_work();
    const std::size_t now = write_some() + (closed_ ? 0 : read_some());
    moved += now;
    if (closed_) return;
    if (writer_.is_broken() || reader_.is_broken())
      return end({ErrorCode::kCorrupt, "its other end spoils the shared memory"});
    if (now > 0) continue;
    const bool more_to_write = !leaving_.empty() && !writer_.wait();
    const bool more_to_read = !asked_.empty() && !reader_.wait();
    if (!more_to_write && !more_to_read) return;
  }
}

std::size_t ShmLink::write_from(Leaving& leaving) {
  std::size_t moved = 0;
  while (leaving.part < leaving.parts.size()) {
    const BytesView rest = leaving.parts[leaving.part].view().subspan(leaving.at);
    const std::size_t count =
        writer_.write(rest.first(std::min(rest.size(), kShmStepBytes - moved)));
    moved += count;
    leaving.at += count;
    if (count == rest.size()) {
      ++leaving.part;
      leaving.at = 0;
    } else if (count == 0 || moved == kShmStepBytes) {
      break;
    }
  }
  if (moved > 0 && writer_.wakes()) ring();
  return moved;
}

std::size_t ShmLink::write_some() {
  if (leaving_.empty()) return 0;
  Leaving& first = leaving_.front();
  const std::size_t moved = write_from(first);
  if (first.part == first.parts.size()) {
    leaving_.pop_front();
    if (handlers_.on_sent) handlers_.on_sent();
  }
  return moved;
}

std::size_t ShmLink::read_some() {
  if (asked_.empty()) return 0;
  Buffer& first = asked_.front();
  const MutableBytes rest = first.bytes().subspan(filled_);
  const std::size_t count = reader_.read(rest.first(std::min(rest.size(), kShmStepBytes)));
  filled_ += count;
  if (count == 0 || filled_ - reported_ >= kShmReportBytes) report();
  if (closed_) return count;
  const bool whole = filled_ == first.size();
  if (count > 0 && reader_.wakes(whole)) ring();
  if (!whole) return count;
  Buffer payload = std::move(first);
  asked_.pop_front();
  filled_ = reported_ = 0;
  handlers_.on_received(std::move(payload));
  return count;
}

void ShmLink::report() {
  if (filled_ == reported_ || filled_ == asked_.front().size()) return;
  reported_ = filled_;
  if (handlers_.on_arriving) handlers_.on_arriving(filled_);
}

void ShmLink::end(Error error) {
  const Handlers handlers = std::exchange(handlers_, {});
  close();
  if (handlers.on_closed) handlers.on_closed(std::move(error));
}

void ShmLink::close() {
  if (std::exchange(closed_, true)) return;
  leaving_.clear();
  asked_.clear();
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace swarmline
