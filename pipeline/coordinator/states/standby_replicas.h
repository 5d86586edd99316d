// The shadows at work: who follows which stage beside the one it serves, whether it keeps up, and
// whether it holds what the stage's members hold.
//   What:      adds and drops shadows, hears what they say under their own names, confirms those
//              that hold their stage's bits, demotes those that do not keep up, and tells them of
//              each commit.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Bounds:    as ShadowDesk.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "base/ids.h"
#include "engine/net/frame.h"
#include "pipeline/coordinator/members/balance_desk.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/states/shadow_desk.h"
#include "pipeline/coordinator/states/state_transfer.h"
#include "pipeline/coordinator/steps/commit_round.h"
#include "pipeline/coordinator/steps/replica_audit.h"

namespace swarmline {

class StandbyReplicas final : public RunObserver {
 public:
  struct Needs {  // services, and parts below it
    Alarms& alarms;
    const RunSequence& sequence;
    ShadowDesk& shadows;
    const ReplicaAudit& audit;
    StateTransfer& states;
    CommitRound& round;
    BalanceDesk& balancer;
    Outbox& outbox;
    EventLog& events;
    Rulings& rulings;
  };
  explicit StandbyReplicas(const Needs& needs) : in_(needs) {}

  void add(const Seat& host, StageId stage, const std::string& why);
  void drop(const Seat& shadow, const std::string& kind, const std::string& why);
  void demote(const Seat& shadow,
              const std::string& why);  // its host is asked for none for a while

  // ---- What a shadow says, under its own name ----
  void on_want_state(const Seat& shadow);
  void on_ready(const Seat& shadow, std::uint64_t version, std::uint64_t digest);
  void on_goodbye(const Seat& shadow, const std::string& why) { demote(shadow, why); }

  // ---- Settling ----
  // Members of the stage have said what they hold.
  void look_at(StageId stage) { unchecked_.insert(stage); }
  // Nobody serves the stage any more who could confirm what they hold.
  void confirm_alone(StageId stage);
  bool is_due() const { return !unchecked_.empty(); }
  // One that has the bits that the members have is ready; one that has others ends.
  // `members_of`: how many a stage has.
  void check(const std::function<std::size_t(StageId)>& members_of);
  // `spared`: nobody is there to fetch from.
  void demote_late(const std::function<bool(StageId)>& spared);
  // Members of a stage differ: whether its shadows say, or may say, who is right.
  bool settle_tie(StageId stage, std::uint64_t version, const ReplicaAudit::Votes& votes);
  // Stages where a shadow has yet to fetch what is committed now.
  std::set<StageId> stages_to_keep_for() const;
  // Of those stages others serve or are known than before.
  void tell_views(const std::set<Seat>& changed, Membership& members);
  void tell_commit(const CommitOrder& commit, const std::set<StageId>& keepers);

  // What a lost host's shadow of that stage held stays for its host, which takes the stage over.
  void keep_for(const Seat& shadow) { kept_.insert(shadow); }
  void keep_no_more(const Seat& shadow);  // its host does not come
  void took_over(const Seat& shadow) { kept_.erase(shadow); }

  void on_seat_lost(const SeatLoss& lost) override;
  void on_rollback() override;

 private:
  void forget(const Seat& shadow);
  void confirm(const Seat& shadow);

  Needs in_;
  std::set<StageId> unchecked_;
  std::set<Seat> kept_;
};

}  // namespace swarmline
