// When a checkpoint is due: by steps, by time, and again after one that failed.
//   What:    asked at each commit. What failed is tried again at a commit, after a pause that is
//            twice as long each time in a row.
//   Units:   [checkpoint] every_steps and every_minutes, 0: not by that.
//   Thread:  control thread. Pure. Errors: none.
//   Bounds:  pauses from knobs().checkpoint_pause_min to checkpoint_pause_max.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "engine/config/run_config.h"

namespace swarmline {

class CheckpointSchedule {
 public:
  explicit CheckpointSchedule(const CheckpointSection& config) : config_(config) {}

  void start(Instant now) { begun_ = now; }  // training begins, or goes on
  bool is_due(std::uint64_t version, Instant now) const;
  // Before that none is begun: what failed would fail again.
  Instant may_begin() const { return may_begin_; }
  std::uint32_t failures() const { return failures_; }  // in a row

  void ask() { asked_ = true; }  // for one at the next commit, whatever the config says
  void on_begun(Instant now) {
    begun_ = now;
    asked_ = false;
  }
  void on_done();
  void on_failed(Instant now);       // it could not be written
  void on_interrupted();             // nobody's fault: at the next commit
  void forget() { again_ = false; }  // the run goes back: nothing is owed

 private:
  const CheckpointSection& config_;
  Instant begun_{};  // the one before
  Instant may_begin_{};
  std::uint32_t failures_ = 0;
  bool again_ = false;  // the one before is owed
  bool asked_ = false;
};

}  // namespace swarmline
