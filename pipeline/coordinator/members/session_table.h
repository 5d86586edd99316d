// The connections of a coordinator: tools that ask, and peers after their Hello.
//   What:      who is connected, which connection is whose seat's, how many bytes all of them
//              carried.
//   Ownership: a session and its channel hold each other until the connection has closed, which may
//              be after the table; its end closes them all.
//   Thread:    control thread.
//   Bounds:    kSessionsMax; one more is closed at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/limits.h"
#include "base/units.h"
#include "engine/net/rpc.h"
#include "pipeline/coordinator/members/reach.h"

namespace swarmline {

struct Session {
  std::shared_ptr<RpcChannel> channel;
  Seat seat;  // peer 0 until it has one
  bool closed = false;
  bool said_hello = false;
  std::vector<std::string> nonces;  // given to it, each for one proof (admin_gate.h)
  Instant heard{};                  // its last request, while it has no seat
  bool is_probed = false;           // whether it takes connections is being asked (reach_desk.h)
  Reach reach = Reach::kUnknown;
  bool has_seat() const { return seat.peer.value != 0; }
};
using SessionPtr = std::shared_ptr<Session>;

class SessionTable {
 public:
  static constexpr std::size_t kSessionsMax = static_cast<std::size_t>(Limits::peers_max) + 64;

  SessionTable() = default;
  ~SessionTable();
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  void add(const SessionPtr& session);
  void closed(const SessionPtr& session);  // its connection has ended
  void close_all();

  // The session speaks for the seat from now on.
  void seat(const SessionPtr& session, const Seat& seat);
  SessionPtr unseat(PeerId peer);    // null: it has none
  SessionPtr of(PeerId peer) const;  // null: it has none
  const std::map<PeerId, SessionPtr>& seated() const { return seated_; }
  std::size_t size() const { return sessions_.size(); }
  // Those without a seat that have asked for nothing for Limits::nobodys_link_idle_max.
  std::vector<SessionPtr> idle_without_seat(Instant now) const;
  std::uint64_t bytes() const;  // sent and received, ended connections included

  void check_invariants() const;

 private:
  std::vector<SessionPtr> sessions_;
  std::map<PeerId, SessionPtr> seated_;
  std::uint64_t bytes_of_closed_ = 0;
};

}  // namespace swarmline
