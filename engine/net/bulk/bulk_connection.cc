#include "engine/net/bulk/bulk_connection.h"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/net/message_pieces.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kBulkArrivalStepBytes = 64 * kKiB;  // between two reports of a payload
constexpr Duration kBulkCloseFlushMax = std::chrono::seconds(1);

// In which whoever has connected may say a link's secret.
std::uint16_t kind_for_streams(const ConnectionBounds& bounds) {
  for (std::uint16_t kind = 1; kind <= kBulkKindMax; ++kind)
    if (bounds.room(kind).meta_bytes_max >= kBulkSecretBytes) return kind;
  return 0;
}

Error closed_by_this_end() {
  return {ErrorCode::kStopped, "closed by this end"};
}

}  // namespace

BulkConnection::BulkConnection(std::shared_ptr<BulkDoor::Shared> shared,
                               std::shared_ptr<Connection> beneath)
    : shared_(std::move(shared)),
      beneath_(std::move(beneath)),
      stranger_kind_(kind_for_streams(bounds_)) {
  shared_->open.insert(this);
}

BulkConnection::~BulkConnection() {
  shared_->open.erase(this);
  if (link_) link_->close();
}

void BulkConnection::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  if (is_stream_) return;
  is_stranger_ = handlers_.stranger.has_value();
  if (handlers_.stranger) stranger_kind_ = kind_for_streams(*handlers_.stranger);
  beneath_->start({
      .on_frame = [self = shared_from_this()](Frame frame) { self->take(std::move(frame)); },
      .on_closed = [self =
                        shared_from_this()](Error error) { self->end_beneath(std::move(error)); },
      .on_arriving =
          [self = shared_from_this()](const Arrival& arrival) {
            if (self->waiting_.empty() && !self->is_over() && self->handlers_.on_arriving &&
                (arrival.flags & kFrameFlagBulkTrial) == 0)
              self->handlers_.on_arriving(arrival);
          },
      .stranger = handlers_.stranger,
  });
}

void BulkConnection::believe(const ConnectionBounds& bounds) {
  bounds_ = bounds;
  is_stranger_ = false;
  beneath_->believe(bounds);
}

std::uint64_t BulkConnection::unsent_bytes() const {
  return beneath_->unsent_bytes() + leaving_bytes_ + held_bytes_;
}

Connection::Counters BulkConnection::counters() const {
  Counters all = beneath_->counters();
  all.bytes_sent += over_link_.bytes_sent;
  all.bytes_received += over_link_.bytes_received;
  all.frames_sent += held_.size();
  return all;
}

// ---- What leaves --------------------------------------------------------------------------------

// What goes with its frame behind a payload of the link may be large: not more waits over there.
bool BulkConnection::may_send_ahead(const Frame& frame) const {
  const std::uint64_t beside = goes_over_link() ? 0 : frame.payload_bytes();
  return leaving_.empty() ||
         (ahead_bytes_ + beside < kBulkAheadBytesMax && leaving_.size() < kBulkTicketsMax);
}

bool BulkConnection::is_alone() const {
  return held_.empty() && leaving_.empty() && !goes_over_link();
}

void BulkConnection::send_lent(Frame frame) {
  if (is_over() || beneath_ended_) return;
  if (is_alone()) return beneath_->send_lent(std::move(frame));
  frame.hold_payload();
  send(std::move(frame));
}

void BulkConnection::send(Frame frame) {
  if (is_over() || beneath_ended_) return;
  // Where nothing goes another way the connection beneath has the bound.
  if (is_alone() || goes_ahead(frame)) return beneath_->send(std::move(frame));
  const std::uint64_t most = std::min(shared_->options.queue_bytes_max, bounds_.unsent_bytes_max);
  if (unsent_bytes() + frame.wire_bytes() > most)
    return end_later({ErrorCode::kRefused,
                      fmt::format("{} takes too slowly: more than {} bytes were queued for it",
                                  remote(), most)});
  if (held_.empty() && may_send_ahead(frame)) return pass(std::move(frame));
  held_bytes_ += frame.wire_bytes();
  held_.push_back(std::move(frame));
}

void BulkConnection::pass(Frame frame) {
  if (goes_over_link() && frame.payload_bytes() >= shared_->options.payload_bytes_min)
    return pass_over_link(std::move(frame));
  pass_beneath(std::move(frame));
}

void BulkConnection::pass_beneath(Frame frame) {
  if (!leaving_.empty()) {
    ahead_bytes_ += frame.wire_bytes();
    leaving_.back().ahead += frame.wire_bytes();
  }
  beneath_->send(std::move(frame));
}

void BulkConnection::pass_over_link(Frame frame) {
  const std::uint64_t bytes = frame.payload_bytes();
  std::vector<SharedBytes> payload = std::exchange(frame.payload, {});
  const BulkTicket ticket{.payload_bytes = bytes,
                          .number = next_out_++,
                          .hash = link_->needs_checksums() ? hash_of_parts(payload) : 0};
  frame.flags |= kFrameFlagBulk;
  frame.payload = {SharedBytes(encode(ticket))};
  leaving_.push_back({.bytes = bytes,
                      .ahead = frame.wire_bytes(),
                      .is_trial = (frame.flags & kFrameFlagBulkTrial) != 0});
  leaving_bytes_ += bytes - kBulkTicketBytes;  // which the connection beneath counts
  ahead_bytes_ += frame.wire_bytes();
  beneath_->send(std::move(frame));
  link_->send(std::move(payload));
}

void BulkConnection::sent() {
  if (leaving_.empty()) return;
  const Leaving gone = leaving_.front();
  leaving_.pop_front();
  leaving_bytes_ -= gone.bytes - kBulkTicketBytes;
  ahead_bytes_ -= gone.ahead;
  over_link_.bytes_sent += gone.bytes - kBulkTicketBytes;
  if (!gone.is_trial) {
    ++shared_->counters.payloads_sent;
    shared_->counters.bytes_sent += gone.bytes;
  }
  while (!held_.empty() && !closed_ && may_send_ahead(held_.front())) {
    Frame next = std::move(held_.front());
    held_.pop_front();
    held_bytes_ -= next.wire_bytes();
    pass(std::move(next));
  }
  if (closing_ && !closed_ && leaving_.empty() && held_.empty()) beneath_->close();
}

// ---- What comes ---------------------------------------------------------------------------------

void BulkConnection::take(Frame frame) {
  if (is_over()) return;
  if (!std::exchange(has_heard_, true) && (frame.flags & kFrameFlagBulkStream) != 0)
    return become_stream(frame);
  if (is_stream_) return handlers_.on_frame(std::move(frame));
  if ((frame.flags & kFrameFlagBulkTrial) != 0 && !admit_trial(frame)) return;
  if ((frame.flags & kFrameFlagBulk) != 0) {
    if (take_ticket(frame)) {
      const BulkTicket ticket = *parse_bulk_ticket(frame.received_payload());
      frame.flags &= ~kFrameFlagBulk;
      frame.payload.clear();
      wait_for(std::move(frame), ticket);
    }
  } else if (waiting_.empty()) {
    deliver(std::move(frame));
  } else {
    wait_for(std::move(frame), std::nullopt);
  }
}

bool BulkConnection::end_for(std::string what_came) {
  ++shared_->counters.bad_tickets;
  end_later({ErrorCode::kCorrupt, std::move(what_came)});
  return false;
}

// False: it is none, and the connection ends.
bool BulkConnection::take_ticket(const Frame& frame) {
  const auto ticket = parse_bulk_ticket(frame.received_payload());
  if (!ticket) return end_for(ticket.error().what);
  if (!link_ && !meets_) {
    if (!had_link_) return end_for("a payload was announced for a bulk link that there is not");
    end_later({ErrorCode::kPeerGone, "a payload was lost with its bulk link"});
    return false;
  }
  if (ticket->number != next_in_)
    return end_for(
        fmt::format("payload {} was announced, and {} is the next", ticket->number, next_in_));
  if (const FrameRoom room = bounds_.room(frame.kind);
      ticket->payload_bytes == 0 || ticket->payload_bytes > room.payload_bytes_max ||
      ticket->payload_bytes > Limits::frame_payload_bytes_max)
    return end_for(
        fmt::format("a frame of kind {} announces {} bytes of payload, {} are taken here",
                    frame.kind, ticket->payload_bytes, room.payload_bytes_max));
  ++next_in_;
  return true;
}

void BulkConnection::wait_for(Frame frame, std::optional<BulkTicket> ticket) {
  waiting_bytes_ += frame.wire_bytes();
  waiting_.push_back({std::move(frame), ticket});
  if (waiting_bytes_ > kBulkWaitingBytesMax || waiting_.size() > kBulkWaitingFramesMax)
    return end_later(
        {ErrorCode::kCorrupt, fmt::format("{} sends {} frames behind a payload that does not come",
                                          remote(), waiting_.size())});
  ask_for_next();
}

void BulkConnection::ask_for_next() {
  if (!link_ || filling_ != nullptr) return;
  const auto next =
      std::ranges::find_if(waiting_, [](const Waiting& one) { return one.ticket.has_value(); });
  if (next == waiting_.end()) return;
  Buffer room;
  try {
    room = Buffer(next->ticket->payload_bytes);
  } catch (const std::bad_alloc&) {
    return end_later({ErrorCode::kRefused, fmt::format("no memory for a payload of {} bytes",
                                                       next->ticket->payload_bytes)});
  }
  filling_ = room.data();
  filled_ = first_filled_ = reported_ = 0;
  filling_since_.reset();
  watch_stall();
  link_->receive(std::move(room));
}

// It is the first one that waits: what was before it has been delivered.
void BulkConnection::arrived(std::uint64_t bytes_there) {
  filled_ = bytes_there;
  if (is_over() || waiting_.empty()) return;
  if (!filling_since_) {
    filling_since_ = shared_->runtime.now();
    first_filled_ = bytes_there;
  }
  const Waiting& first = waiting_.front();
  if (!first.ticket || first.ticket->payload_bytes < shared_->options.arrival_bytes_min ||
      (first.frame.flags & kFrameFlagBulkTrial) != 0 ||
      filled_ < reported_ + kBulkArrivalStepBytes || !handlers_.on_arriving)
    return;
  reported_ = filled_;
  handlers_.on_arriving({.kind = first.frame.kind,
                         .request = first.frame.request,
                         .flags = first.frame.flags,
                         .meta = first.frame.meta,
                         .arrived = {filling_, filled_},
                         .payload_bytes = first.ticket->payload_bytes});
}

void BulkConnection::received(Buffer payload) {
  filling_ = nullptr;
  const auto first =
      std::ranges::find_if(waiting_, [](const Waiting& one) { return one.ticket.has_value(); });
  if (is_over() || first == waiting_.end()) return;
  const std::uint64_t bytes = payload.size();
  over_link_.bytes_received += bytes - kBulkTicketBytes;
  if (first->ticket->hash != 0 && hash_of_payload(payload.bytes()) != first->ticket->hash)
    return end_later({ErrorCode::kCorrupt, "a payload does not match its hash"});
  if (filling_since_ && bytes > first_filled_) {
    const double seconds = to_seconds(shared_->runtime.now() - *filling_since_);
    first->frame.received_over = from_seconds(seconds * static_cast<double>(bytes) /
                                              static_cast<double>(bytes - first_filled_));
  }
  first->frame.payload = {SharedBytes(std::move(payload))};
  first->ticket.reset();
  waiting_bytes_ += bytes;  // until it is delivered, which it is below
  ask_for_next();
  deliver_ready();
}

void BulkConnection::deliver_ready() {
  while (!is_over() && !waiting_.empty() && !waiting_.front().ticket) {
    Frame frame = std::move(waiting_.front().frame);
    waiting_.pop_front();
    waiting_bytes_ -= std::min(waiting_bytes_, frame.wire_bytes());
    deliver(std::move(frame));
  }
  if (waiting_.empty()) waiting_bytes_ = 0;
  if (waiting_.empty() && beneath_ended_ && !closed_) finish(*beneath_ended_);
}

void BulkConnection::deliver(Frame frame) {
  if ((frame.flags & kFrameFlagBulkTrial) != 0) return answer_trial(frame);
  if (handlers_.on_frame) handlers_.on_frame(std::move(frame));
}

void BulkConnection::watch_stall() {
  seen_filled_ = filled_;
  shared_->runtime.cancel(stall_timer_);
  stall_due_ = shared_->runtime.now() + shared_->options.stalled_max;
  stall_timer_ = shared_->runtime.call_at(stall_due_, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->is_over() || self->filling_ == nullptr) return;
    // A process that was stopped fires its timers before it reads.
    const bool late = self->shared_->runtime.now() - self->stall_due_ > kBulkBrokenGrace;
    if (late || self->filled_ != self->seen_filled_) return self->watch_stall();
    self->end({ErrorCode::kDeadline,
               fmt::format("nothing of a payload from {} has come for {:.3g} s", self->remote(),
                           to_seconds(self->shared_->options.stalled_max))});
  });
}

// ---- Ends ---------------------------------------------------------------------------------------

void BulkConnection::close() {
  if (is_over()) return;
  closing_ = true;
  stop_measuring();
  if (beneath_ended_) return end_later(closed_by_this_end());
  if (leaving_.empty() && held_.empty()) return beneath_->close();
  end_timer_ = shared_->runtime.call_after(kBulkCloseFlushMax, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->end(closed_by_this_end());
  });
}

// What has left before the other end closed in good order is still to come.
void BulkConnection::end_beneath(Error error) {
  if (closed_) return;
  if (ending_) return finish(*ending_);
  if (closing_ || waiting_.empty() || !link_ || error.code != ErrorCode::kPeerGone)
    return finish(closing_ ? closed_by_this_end() : std::move(error));
  beneath_ended_ = std::move(error);
  shared_->runtime.cancel(end_timer_);
  end_timer_ = shared_->runtime.call_after(kBulkCloseFlushMax, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->finish(*self->beneath_ended_);
  });
}

void BulkConnection::end_link(const Error& error) {
  if (closed_ || !link_) return;
  stop_measuring();
  link_.reset();
  filling_ = nullptr;
  if (beneath_ended_) return finish(*beneath_ended_);
  const bool loses = !leaving_.empty() || !waiting_.empty();
  if (!loses && error.code == ErrorCode::kPeerGone) return;
  if (closing_) return end(closed_by_this_end());
  // Where its process is gone the connection says so in a moment.
  end_timer_ = shared_->runtime.call_after(
      error.code == ErrorCode::kPeerGone ? kBulkBrokenGrace : Duration{},
      [weak = weak_from_this(), error] {
        const auto self = weak.lock();
        if (!self || self->closed_) return;
        if (const auto between = self->path()) self->shared_->note_broken(self->way_, *between);
        log(LogLevel::kWarn, "the {} link to {} broke: {}", self->way_, self->remote(), error.what);
        self->end({error.code, fmt::format("its {} link broke: {}", self->way_, error.what)});
      });
}

void BulkConnection::end_later(Error error) {
  if (closed_ || ending_) return;
  closing_ = true;
  ending_ = std::move(error);
  shared_->runtime.post([self = shared_from_this()] { self->end(*self->ending_); });
}

void BulkConnection::end(Error error) {
  beneath_->close();
  finish(std::move(error));
}

void BulkConnection::finish(Error error) {
  if (closed_) return;
  const Handlers handlers = let_go();
  if (handlers.on_closed) handlers.on_closed(std::move(error));
}

void BulkConnection::abandon() {
  if (!closed_) let_go();
}

Connection::Handlers BulkConnection::let_go() {
  closed_ = closing_ = true;
  stop_measuring();
  shared_->runtime.cancel(stall_timer_);
  shared_->runtime.cancel(end_timer_);
  if (const auto link = std::exchange(link_, nullptr)) link->close();
  filling_ = nullptr;
  leaving_.clear();
  held_.clear();
  leaving_bytes_ = held_bytes_ = ahead_bytes_ = 0;
  waiting_.clear();
  return std::exchange(handlers_, {});
}

}  // namespace swarmline
