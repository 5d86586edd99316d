#include "pipeline/coordinator/members/outbox.h"

#include <utility>

#include "base/check.h"
#include "engine/net/message_pieces.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {
bool says_it_is_for(const Seat& to, const Frame& frame) {
  const auto named = addressee(frame);
  return named && *named == to;
}
}  // namespace

void Outbox::send(const Seat& to, Frame frame) {
  SessionPtr session = sessions_.of(to.peer);
  if (!session || session->seat.incarnation != to.incarnation) return;
  SWARMLINE_CHECK(session->seat.stage == to.stage || says_it_is_for(to, frame));
  send(session, std::move(frame));
}

void Outbox::send(const SessionPtr& to, Frame frame) {
  entries_.push_back({Message{to, std::move(frame)}, decided()});
}

void Outbox::respond(RpcChannel::Respond respond, Result<Frame> answer) {
  entries_.push_back({Answer{std::move(respond), std::move(answer)}, decided()});
}

void Outbox::close(const SessionPtr& session) {
  entries_.push_back({Close{session}, decided()});
}

void Outbox::send_freely(const SessionPtr& to, Frame frame) {
  frame.flags |= kFrameFlagAhead;
  free_.push_back({Message{to, std::move(frame)}, 0});
}

void Outbox::respond_freely(RpcChannel::Respond respond, Result<Frame> answer) {
  free_.push_back({Answer{std::move(respond), std::move(answer)}, 0});
}

void Outbox::flush() {
  deliver(free_, journal_.durable);
  deliver(entries_, journal_.durable);
}

void Outbox::drop_waiting() {
  entries_.clear();
  waits_ = false;
}

void Outbox::deliver(std::deque<Entry>& entries, std::uint64_t durable) {
  while (!entries.empty() && entries.front().after <= durable) {
    Entry entry = std::move(entries.front());
    entries.pop_front();
    std::visit([](auto& what) { deliver(what); }, entry.what);
  }
}

void Outbox::deliver(Message& message) {
  message.to->channel->notify(std::move(message.frame));
}
void Outbox::deliver(Answer& answer) {
  answer.respond(std::move(answer.frame));
}
void Outbox::deliver(Close& close) {
  close.session->channel->close();
}

}  // namespace swarmline
