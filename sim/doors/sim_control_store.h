// Who may write a simulated journal: the control half of the fourth door, in virtual time.
//   What:      each process opens a store of its own; one at a time leads, until it releases the
//              lead or loses it without knowing (expire()), as one that dies or whose lease ends.
//   Ownership: the journal outlives everything; stores and their journals may outlive the lead.
//   Thread:    that of the SimRuntime.
//   Errors:    kRefused as engine/store/control_store.h says. Nothing needs to be renewed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/store/control_store.h"

namespace swarmline {

class SimLead {
 public:
  explicit SimLead(Journal& journal);

  std::unique_ptr<ControlStore> open();
  void expire();

 private:
  friend class SimControlStore;
  friend class LedJournal;
  struct State {
    Journal& journal;
    std::uint64_t reign = 0;  // raised whenever the lead changes
    std::string leader = {};  // empty: nobody
  };
  std::shared_ptr<State> state_;
};

}  // namespace swarmline
