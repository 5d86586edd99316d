// The keys of a simulated run: what its folder would hold, and the guards of its processes, which
// are those of real ones (node/admission). Everything is drawn from the run's seed.
//   Who:       processes that lead have the run's key, as the folder has it, and look at it as
//              CoordinatorNode does; peers have one of their own, and a string to join by: of the
//              run as it began, or as it is, by turns.
//   Strangers: peers whose ticket is good for nothing.
//   Ownership: runtime and network outlive it; it outlives coordinators and peers.
//   Thread:    that of the SimRuntime.
//   Bounds:    kHandoversMax rotations, whose overlap is longer than any run of seeds.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/store/async_journal.h"
#include "node/admission/peer_guard.h"
#include "node/admission/run_guard.h"
#include "pipeline/coordinator/coordinator.h"
#include "pipeline/stage/stage_peer.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {

// What a peer comes to a run with keys by.
enum class SimTicket : std::uint8_t {
  kGood,
  kOtherRun,    // a string of a run with another key, at this one's address
  kExpired,     // an invite of this run whose time is over
  kRevoked,     // one that was revoked
  kUsedUp,      // one that was for a peer that has come
  kStolenSeat,  // no invite, and the certificate of another peer's seat
};

class SimKeys {
 public:
  // `coordinators`: addresses in the strings that join.
  SimKeys(SimRuntime& runtime, SimNetwork& network, std::vector<Address> coordinators);
  ~SimKeys();
  SimKeys(const SimKeys&) = delete;
  SimKeys& operator=(const SimKeys&) = delete;

  // A process begins to lead from that node. The journal outlives this.
  void lead(SimNodeId node, AsyncJournal& journal, CoordinatorOptions& options);
  // A peer's process begins at that node.
  void join(SimNodeId node, SimTicket ticket, StagePeerOptions& options);
  // As `swarmline keys rotate` does. False: it was too often.
  bool rotate();

  bool is_stranger(SimNodeId node) const { return strangers_.contains(node); }
  bool is_strangers_key(const std::string& hash) const { return strange_keys_.contains(hash); }
  KeyHash key() const { return key_.identity.hash(); }  // in the run's folder
  // That process shows it: it has heard of the newest rotation.
  bool leads_with(SimNodeId node) const;
  std::uint64_t rotations() const { return rotations_; }

 private:
  struct Process;
  Identity identity(std::string_view what, std::uint64_t number) const;
  Invite make_invite(double life_seconds, std::uint64_t uses_max);
  Result<void> add_line(const NextLine& line);
  JoinString string_of(SimNodeId node, SimTicket ticket);
  double now() const;
  void look_later(const std::shared_ptr<Process>& process);
  void look(const std::shared_ptr<Process>& process);

  SimRuntime& runtime_;
  SimNetwork& network_;
  const std::vector<Address> coordinators_;
  Rng rng_;
  RunKey key_;
  const KeyHash first_key_;
  std::string invites_;  // lines
  Invite open_invite_;   // of everybody whose ticket is good
  std::uint64_t rotations_ = 0;
  std::string stolen_;  // the certificate that was given last
  std::set<SimNodeId> strangers_;
  std::set<std::string> strange_keys_;               // their hashes
  std::vector<std::shared_ptr<Process>> processes_;  // that ever led
};

}  // namespace swarmline
