// A coordinator that dies as it sends or is sent a frame of a test's choice. Header-only.
#pragma once

#include <memory>

#include "tests/pipeline/swarm_harness.h"

namespace swarmline {

// The `nth` frame of a kind: the last that gets through, or the first that does not.
struct CrashPoint {
  MessageKind kind;
  std::uint64_t nth;
  bool last_through;
};

class Crash {
 public:
  Crash(Swarm& swarm, CrashPoint moment) : swarm_(swarm) {
    swarm.lose([moment, state = state_, seen = std::uint64_t{0}](SimNodeId from, SimNodeId to,
                                                                 const Frame& frame) mutable {
      if (state->over || (from != kCoordinatorNode && to != kCoordinatorNode)) return false;
      if (!state->dying && kind_of(frame) == moment.kind && ++seen == moment.nth) {
        state->dying = true;
        return !moment.last_through;
      }
      return state->dying;
    });
  }
  // False: the run was over before.
  bool happens(Duration down) {
    swarm_.until([this] { return state_->dying || swarm_.cluster().outcome(); },
                 std::chrono::hours(1));
    if (!state_->dying) return false;
    swarm_.cluster().kill_coordinator();
    state_->over = true;
    swarm_.cluster().runtime().run_for(down);
    return true;
  }

 private:
  struct State {
    bool dying = false, over = false;
  };
  Swarm& swarm_;
  std::shared_ptr<State> state_ = std::make_shared<State>();  // the swarm's rule outlives this
};

}  // namespace swarmline
