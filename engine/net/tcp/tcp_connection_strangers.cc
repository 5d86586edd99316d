// TcpConnection while nobody knows who is at its other end (strangers.h).
#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "engine/net/tcp/tcp_connection.h"

namespace swarmline {
namespace asio = boost::asio;
namespace {

constexpr double kStrangerBytesPerSecondMin = 64.0 * kKiB;

}  // namespace

void TcpConnection::be_stranger() {
  bounds_ = *handlers_.stranger;
  reader_.take_only(bounds_.room, true);
  boost::system::error_code error;
  const auto remote = socket_.remote_endpoint(error);
  const auto [id, crowded_out] = shared_->strangers.add(
      error ? remote_ : remote.address().to_string(), shared_->runtime.now());
  stranger_ = id;
  shared_->stranger_connections[id] = this;
  watch_stranger();
  if (crowded_out) shared_->stranger_connections.at(*crowded_out)->give_way();
}

// Its place is taken at once. Closed later: its owner may be in the middle of something.
void TcpConnection::give_way() {
  SWARMLINE_MARK("tcp.stranger_crowded_out");
  ++shared_->counters.crowded_out;
  leave_strangers();
  gives_way_ = true;
  asio::post(socket_.get_executor(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || !self->gives_way_) return;  // it has said who it is meanwhile
    HandlerScope scope(self->shared_->runtime);
    self->end_stranger({ErrorCode::kRefused, "others came, and it had not said who it is"});
  });
}

// A long hello may come over a slow link, as long as it comes.
Instant TcpConnection::stranger_deadline() const {
  const auto came = static_cast<double>(reader_.filled_bytes());
  return shared_->strangers.deadline(*stranger_) + from_seconds(came / kStrangerBytesPerSecondMin);
}

void TcpConnection::watch_stranger() {
  std::weak_ptr<TcpConnection> weak = shared_from_this();
  const Duration left = stranger_deadline() - shared_->runtime.now();
  stranger_timer_ = shared_->runtime.call_after(left, [weak] {
    const auto self = weak.lock();
    if (!self || !self->stranger_) return;
    if (self->stranger_deadline() > self->shared_->runtime.now()) return self->watch_stranger();
    SWARMLINE_MARK("tcp.silent_stranger");
    ++self->shared_->counters.silent_strangers;
    self->end_stranger({ErrorCode::kDeadline, "it has not said who it is"});
  });
}

void TcpConnection::end_stranger(Error error) {
  if (const auto times = shared_->stranger_lines.happened(shared_->runtime.now()))
    log(LogLevel::kWarn, "closing {}: {} ({} such connections)", remote_, error.what, times);
  close_socket();
  finish(std::move(error));
}

bool TcpConnection::note_held() {
  const std::uint64_t held = reader_.held_bytes() + joiner_.held_bytes();
  const std::uint64_t more = held - std::min(held, Limits::stranger_meta_bytes_max);
  return shared_->strangers.holds(*stranger_, more, unsent_bytes_);
}

bool TcpConnection::stranger_holds_too_much() {
  if (note_held()) return false;
  SWARMLINE_MARK("tcp.greedy_stranger");
  ++shared_->counters.greedy_strangers;
  end_stranger({ErrorCode::kRefused, "all that have not said who they are take too much memory"});
  return true;
}

void TcpConnection::leave_strangers() {
  if (!stranger_) return;
  shared_->strangers.remove(*stranger_);
  shared_->stranger_connections.erase(*stranger_);
  stranger_.reset();
  shared_->runtime.cancel(stranger_timer_);
}

void TcpConnection::believe(const ConnectionBounds& bounds) {
  leave_strangers();
  gives_way_ = false;
  bounds_ = bounds;
  reader_.take_only(bounds.room, false);
}

}  // namespace swarmline
