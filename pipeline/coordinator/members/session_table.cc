#include "pipeline/coordinator/members/session_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace swarmline {

namespace {
std::uint64_t bytes_of(Session& session) {
  const Connection::Counters counters = session.channel->connection().counters();
  return counters.bytes_sent + counters.bytes_received;
}
}  // namespace

SessionTable::~SessionTable() {
  for (const SessionPtr& session : sessions_) std::exchange(session->channel, nullptr)->close();
}

void SessionTable::add(const SessionPtr& session) {
  sessions_.push_back(session);
  if (sessions_.size() > kSessionsMax) session->channel->close();
}

void SessionTable::closed(const SessionPtr& session) {
  bytes_of_closed_ += bytes_of(*session);
  std::erase(sessions_, session);
  session->closed = true;
}

void SessionTable::close_all() {
  const std::vector<SessionPtr> sessions = sessions_;
  for (const SessionPtr& session : sessions) session->channel->close();
}

void SessionTable::seat(const SessionPtr& session, const Seat& seat) {
  session->seat = seat;
  seated_[seat.peer] = session;
}

SessionPtr SessionTable::unseat(PeerId peer) {
  auto found = seated_.extract(peer);
  return found.empty() ? nullptr : found.mapped();
}

SessionPtr SessionTable::of(PeerId peer) const {
  const auto found = seated_.find(peer);
  return found == seated_.end() ? nullptr : found->second;
}

std::vector<SessionPtr> SessionTable::idle_without_seat(Instant now) const {
  std::vector<SessionPtr> idle;
  for (const SessionPtr& session : sessions_)
    if (!session->has_seat() && now - session->heard > Limits::nobodys_link_idle_max)
      idle.push_back(session);
  return idle;
}

std::uint64_t SessionTable::bytes() const {
  std::uint64_t bytes = bytes_of_closed_;
  for (const SessionPtr& session : sessions_) bytes += bytes_of(*session);
  return bytes;
}

void SessionTable::check_invariants() const {
  for (const auto& [peer, session] : seated_)
    SWARMLINE_CHECK(session != nullptr && session->seat.peer == peer);
}

}  // namespace swarmline
