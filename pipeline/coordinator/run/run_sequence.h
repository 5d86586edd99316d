// Which phase comes when. Pure: told what happened, says what may happen next.
//
//   delay 0: step t computes on version t, so it opens when step t-1 is committed.
//   delay 1: step t computes on version t-1 (the first step with a delay, on its own version), so
//            it may open when t-2 is committed, and does when step t-1 has nothing left to lease:
//            one step drains while the next one fills, and both are computed. It must open before
//            t-1 commits, for then that version is gone.
//   A run that goes on from a checkpoint begins with that version, and opens its first step when
//            it is committed already; an evaluation that may have been lost is made again.
//   Evaluation of version v opens when v becomes the version that is computed on, before the step
//   on v, and holds back the sealing of that step (which would end the version).
// Source: delayed parameter updates, Ren et al. 2021 (ZeRO-Offload), section 5.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"

namespace swarmline {

struct SequenceOptions {
  std::uint64_t steps = 0;
  std::uint32_t delay = 0;
  std::uint64_t eval_every_steps = 0;  // 0: only at the end
  bool eval = false;                   // there is something to evaluate
  std::uint64_t begin = 0;             // commits before the first step
  std::uint64_t delayed_since = 0;     // with a delay: it has one from this step on
  bool overlaps = false;               // with a delay: a step may open beside another
};

class RunSequence {
 public:
  explicit RunSequence(const SequenceOptions& options);

  struct Opening {
    Phase phase;
    Version version;
  };
  // Goes on after `committed` commits: the step after them was open, with `ahead` the one after
  // that, too; versions up to `evaluated` have been evaluated.
  void restore(std::uint64_t committed, bool ahead, std::uint64_t evaluated);
  // Phases to open now, in order; the caller opens all of them. `all_leased`: nothing is left to
  // lease of the step that is open.
  std::vector<Opening> take_openings(bool all_leased = false);
  // The step after the one that is open would be among them.
  bool may_run_ahead() const;
  // The train phase may be sealed: complete, its version not needed by an evaluation, the one
  // before committed.
  bool may_seal(std::uint64_t step) const;
  void on_sealed(std::uint64_t step);
  void on_committed(std::uint64_t step);
  void on_evaluated(std::uint64_t version);
  void drain() { draining_ = true; }
  void forget_drain() { draining_ = false; }
  bool draining() const { return draining_; }

  std::uint64_t committed() const { return committed_; }  // commits so far = the newest version
  bool finished() const;                                  // nothing open, nothing to open
  std::size_t open_evals() const { return open_evals_.size(); }

 private:
  bool eval_due(std::uint64_t version) const;
  void take_next(std::vector<Opening>& openings);
  std::uint64_t computed_on(std::uint64_t step) const;

  SequenceOptions options_;
  std::uint64_t next_step_ = 0;  // to open
  std::uint64_t sealed_ = 0;     // steps sealed
  std::uint64_t committed_ = 0;
  std::uint64_t evaluated_below_ =
      1;  // versions below have had their turn (version 0 is not evaluated)
  std::set<std::uint64_t> open_evals_;  // versions
  bool restored_ = false;  // the step on an older version than the newest may be opened again
  bool ahead_ = false;     // the step after the next one is to be opened with it
  bool draining_ = false;
};

}  // namespace swarmline
