// How often peers are to say that they live: as often as the config says, and less often where they
// are so many that their heartbeats would keep the coordinator busy.
//   What:      the period doubles as often as it takes until no more than
//              knobs().heartbeats_per_second come, up to longest(); it is halved again once clearly
//              fewer would come: it does not change at each peer that comes or goes.
//   Thread:    any. Pure.
//   Bounds:    longest(): knobs().heartbeat_period_max, and half of the silence that the config
//              allows, where it says one; the config's own period, where that is longer. With more
//              peers than that serves, more heartbeats come.
#pragma once

#include <cstddef>

#include "base/units.h"
#include "engine/config/run_config.h"

namespace swarmline {

class HeartbeatPace {
 public:
  explicit HeartbeatPace(const NetSection& net);

  void count(std::size_t peers);  // so many beat now
  Duration usual() const { return usual_; }
  Duration longest() const { return longest_; }
  Duration now() const { return period(doublings_); }

 private:
  Duration period(int doublings) const;

  Duration usual_;
  Duration longest_;
  int doublings_ = 0;
};

}  // namespace swarmline
