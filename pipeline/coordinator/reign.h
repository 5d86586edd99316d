// One reign of a coordinator: routes what comes in to the parts.
//   What:      a handler records what happened, in the part concerned; after each the coordinator
//              settles (settling.h). No handler calls another.
//   Ownership: what it is made with outlives it.
//   Thread:    control thread.
//   Errors:    what a peer says wrongly ends its connection, with a line in the log.
//   Bounds:    a status is made once in kStatusLife for all who ask over links: making one takes
//              longer than asking.
#pragma once

#include <string>
#include <vector>

#include "base/line_rate.h"
#include "pipeline/coordinator/coordinator_parts.h"
#include "pipeline/coordinator/members/admin_gate.h"
#include "pipeline/coordinator/run/coordinator_options.h"
#include "pipeline/coordinator/settling.h"

namespace swarmline {

class Reign {
 public:
  static constexpr Duration kStatusLife = std::chrono::milliseconds(100);

  Reign(const CoordinatorParts::Doors& doors, CoordinatorOptions options, SelfRestart begun_so,
        RunEnds ends);
  ~Reign();
  Reign(const Reign&) = delete;
  Reign& operator=(const Reign&) = delete;

  Result<Address> start();
  void request_stop(bool now) { settling_.request_stop(now); }
  Result<std::string> request_checkpoint() { return settling_.request_checkpoint(); }
  RunStatus status() const;
  void check_invariants() const { parts_.check_invariants(); }
  bool takes_peers() const { return !parts_.life.is<life::RollingBack>(); }
  bool serves(const Seat& seat) const { return parts_.members.serves(seat); }
  std::vector<Seat> shadow_hosts(StageId stage) const;
  const CoordinatorParts& parts() const { return parts_; }  // for insight

 private:
  const std::string& recent_status();
  Result<Address> listen();
  void say_moved(const Address& from, const Address& to, const std::string& why);
  void accept(std::shared_ptr<Connection> connection);
  void on_closed(const SessionPtr& session, const Error& error);
  void on_request(const SessionPtr& session, const Frame& frame, RpcChannel::Respond respond);
  void on_status_request(const SessionPtr& session, const Frame& frame,
                         RpcChannel::Respond respond);
  template <typename Request>
  Result<void> may_steer(const SessionPtr& session, MessageKind kind,
                         const Result<Request>& request);
  void on_checkpoint_request(const SessionPtr& session, const Frame& frame,
                             RpcChannel::Respond respond);
  void on_stop_request(const SessionPtr& session, const Frame& frame, RpcChannel::Respond respond);
  void on_message(const SessionPtr& session, const Frame& frame);
  void answer_heartbeat(const SessionPtr& session, const wire::Heartbeat& beat);
  void on_want_state(const Seat& from);
  void on_ready(const SessionPtr& session, const wire::Ready& ready);
  void on_shadow_ready(const Seat& shadow, const wire::Ready& ready);
  void on_reduced(const Seat& from, const wire::Reduced& reduced);
  void on_leave(const wire::Leave& leave);
  void on_goodbye(const Seat& from, const std::string& reason);
  void count_sent(const Seat& from, std::uint64_t bytes);
  void on_stepped(const wire::Stepped& stepped);
  void judge(const std::vector<Seat>& silent);
  void let_go_of_those_that_stand_still(Instant now);
  void close_nobodys_links(Instant now);
  void look();  // for those who are silent or late

  Network& network_;
  const CoordinatorOptions options_;
  const SelfRestart begun_so_;
  AdminGate admin_;
  LineRate not_invited_lines_;
  std::string shown_;  // to whoever asks
  Instant shown_at_{};
  CoordinatorParts parts_;
  Settling settling_;
};

}  // namespace swarmline
