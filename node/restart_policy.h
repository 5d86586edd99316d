// When a process that died is started again: at once after a life of some length, later and later
// when it dies soon after each start, and never again after some such lives in a row.
//   Units:  Duration. Thread: one. Errors: none. Bounds: attempts_max starts in a row that came to
//   nothing.
#pragma once

#include <optional>

#include "base/units.h"

namespace swarmline {

class RestartPolicy {
 public:
  struct Limits {
    int attempts_max = 5;  // restarts in a row of lives shorter than `soon`; 0: none at all
    Duration soon = std::chrono::seconds(30);
    Duration pause_first = std::chrono::milliseconds(500);  // before the second restart in a row
    Duration pause_max = std::chrono::seconds(30);
  };
  explicit RestartPolicy(const Limits& limits) : limits_(limits) {}

  // It died after `lived`. How long to wait before it is started again; nothing: it is given up.
  std::optional<Duration> died(Duration lived);
  // Short lives in a row, the last one included.
  int short_lives() const { return short_lives_; }

 private:
  Limits limits_;
  int short_lives_ = 0;
};

}  // namespace swarmline
