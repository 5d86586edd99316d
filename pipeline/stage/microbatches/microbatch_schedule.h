// In which order a peer may compute a step's microbatches: `[pipeline] order`, for fixed routes.
// What SWARM is measured against.
//   gpipe: no backward before the last forward (Huang et al., NeurIPS 2019). Held at the last
//          stage, on whose gradients all others wait; released newest first.
//   1f1b:  a peer of stage s of S has at most S - s microbatches between the beginning of its
//          forward and the end of its backward (PipeDream-Flush, Narayanan et al., ICML 2021).
//   free:  holds nothing.
// Neither idles a device for the order's sake when something it allows is there, which a fixed list
// of operations would.
//   Liveness: a change of the stage's members or a lost link lifts the order for the rest of the
//             step; what is held is under its sender's hop timer like what is computed.
//   Thread:   control thread; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"
#include "pipeline/stage/microbatches/microbatch_task.h"

namespace swarmline {

class MicrobatchSchedule {
 public:
  MicrobatchSchedule(const RunConfig& config, const StageSpec& stage);

  // Routes give this peer the indices i with i mod members = rank.
  void set_share(std::uint32_t rank, std::uint32_t members);
  // True: the task is kept until take_ready() hands it out, or it is over.
  bool hold_forward(const TaskPtr& task);
  bool hold_backward(const TaskPtr& task);
  void on_over(const TaskPtr& task);
  void lift();

  struct Ready {
    std::vector<TaskPtr> forwards, backwards;
  };
  Ready take_ready();

 private:
  void enter(const Phase& phase);
  bool all_forwards_done() const;

  OrderKind kind_;
  bool last_;
  std::uint32_t running_max_;
  std::uint32_t microbatches_;  // of a step
  std::uint32_t rank_ = 0;
  std::uint32_t members_ = 1;

  std::optional<Phase> phase_;  // the step under way
  bool lifted_ = false;
  std::set<AttemptId> running_;   // 1f1b
  std::set<std::uint32_t> seen_;  // gpipe: indices of the share that were computed or given up
  std::vector<TaskPtr> forwards_, backwards_;  // held, in order of arrival
};

}  // namespace swarmline
