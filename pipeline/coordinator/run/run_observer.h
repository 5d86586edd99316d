// What happens to a run and concerns many parts of its coordinator: each hears of it in the one
// order of the coordinator's table.
//   Contract: an observer records what it hears, for when the coordinator settles, and may have the
//             parts below it record it; it ends no seat and no run.
//   Thread:   control thread.
#pragma once

#include "base/ids.h"
#include "pipeline/coordinator/run/rulings.h"

namespace swarmline {

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // The seat is over: journaled, its member is lost.
  virtual void on_seat_lost(const SeatLoss& /*lost*/) {}
  // The run goes back: all seats are over, what steps were open is void.
  virtual void on_rollback() {}
  // A phase is over: a committed step, or an evaluation.
  virtual void on_retired(const Phase& /*phase*/) {}
};

}  // namespace swarmline
