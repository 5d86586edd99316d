// Who may write a simulated journal: the control half of the fourth door, in virtual time.
//   What:      each process opens a store of its own; one at a time leads, until it releases the
//              lead or loses it without knowing (expire()), as one that dies or whose lease ends.
//              With a `lease` it has to be renewed; a process that is cut off (cut_off()) can't.
//   Ownership: the journal outlives everything; stores and their journals may outlive the lead.
//   Thread:    that of the SimRuntime.
//   Errors:    as engine/store/control_store.h says.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "engine/store/control_store.h"
#include "sim/doors/sim_journal.h"

namespace swarmline {

class SimLead {
 public:
  SimLead(SimRuntime& runtime, SimJournal& journal, Duration lease = {});

  std::unique_ptr<ControlStore> open(SimNodeId node);
  void expire();
  // Nothing that the node's process asks is answered, and its lease runs out.
  void cut_off(SimNodeId node, bool yes);

 private:
  friend class SimControlStore;
  friend class LedJournal;
  struct State {
    SimRuntime& runtime;
    SimJournal& journal;
    Duration lease{};
    std::uint64_t reign = 0;  // raised whenever the lead changes
    std::string leader = {};  // empty: nobody
    Instant expires{};        // with a lease
    std::set<SimNodeId> cut_off = {};

    void look() {  // whether the lease is over
      if (lease > Duration{} && !leader.empty() && runtime.now() >= expires) end();
    }
    void end() {
      leader.clear();
      ++reign;
    }
  };
  std::shared_ptr<State> state_;
};

}  // namespace swarmline
