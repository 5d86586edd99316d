// Peers that the run does without: who, from where, and why, in a line each, for its user.
//   What:      an event of each; the newest is in the status, too.
//   Ownership: what it is made with outlives it. Thread: control thread. Errors: none.
//   Bounds:    of those that never had a seat, kLinesMax lines each LineRate::kPeriod: anybody may
//              come.
#pragma once

#include <string>

#include "base/line_rate.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/event_log.h"

namespace swarmline {

class Refusals {
 public:
  static constexpr std::uint32_t kLinesMax = 8;

  Refusals(const Alarms& alarms, EventLog& events) : alarms_(alarms), events_(events) {}

  // It said hello and got no seat; `from`: the other end of its connection.
  void at_the_door(const wire::Hello& hello, const std::string& from, const std::string& why);
  // Its seat ends. `kind`: "peer_refused", or "peer_failed" where it says so itself.
  void of_a_seat(const std::string& kind, const Member& member, const std::string& why);
  const std::string& newest() const { return newest_; }  // empty: none

 private:
  const Alarms& alarms_;
  EventLog& events_;
  LineRate at_the_door_{kLinesMax};
  std::string newest_;
};

}  // namespace swarmline
