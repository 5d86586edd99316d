// Whether a peer lives whose link to the coordinator broke, and that is the last of its stage: a
// process that is gone takes the stage's state along, a link that broke does not.
//   What:      dials its address, unless it was found that this leads to nobody, or is another
//              host's than it comes from: then only its silence tells. Where the process is gone
//              that refuses at once, or what stands between ends the connection soon; whether one
//              that can't be reached lives nobody knows, and its silence is what counts. One that
//              stands says that the peer lives, and the coordinator begins again on its journal, to
//              take it back to its seat. Of two that can't reach each other it tells who can't be
//              reached from here, either.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Bounds:    knobs().probe_time to reach it, probe_stands to stand.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/ids.h"
#include "engine/net/network.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/rulings.h"

namespace swarmline {

class LinkProbe {
 public:
  LinkProbe(Network& network, Alarms& alarms, const Membership& members, Rulings& rulings,
            std::function<bool()> may_begin_again)
      : network_(network),
        alarms_(alarms),
        members_(members),
        rulings_(rulings),
        may_begin_again_(std::move(may_begin_again)) {}

  // Nothing is heard from it: whether its process is gone, which refuses. Else nothing follows.
  void ask(const Seat& seat);
  // The same of any member's address; false: it is none.
  bool ask(const Member& member, std::function<void(const std::string& why)> gone);
  // `then` where a connection to it can't be made, whatever the reason; nothing where its address
  // was not known to lead to it.
  void unless_reached(const Seat& seat, std::function<void()> then);
  // `why`: how its link ended.
  void probe(const Seat& seat, const std::string& why);

 private:
  void judge(const Seat& seat, const std::string& why, bool stands);

  Network& network_;
  Alarms& alarms_;
  const Membership& members_;
  Rulings& rulings_;
  std::function<bool()> may_begin_again_;
};

}  // namespace swarmline
