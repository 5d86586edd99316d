#include "pipeline/stage/microbatches/microbatch_schedule.h"

#include <algorithm>
#include <utility>

namespace swarmline {

MicrobatchSchedule::MicrobatchSchedule(const RunConfig& config, const StageSpec& stage)
    : kind_(config.pipeline.order),
      last_(stage.has_head()),
      running_max_(stage.stages - stage.stage.value),
      microbatches_(config.microbatches_per_step()) {}

void MicrobatchSchedule::set_share(std::uint32_t rank, std::uint32_t members) {
  if (rank == rank_ && members == members_) return;
  rank_ = rank;
  members_ = members;
  lift();
}

void MicrobatchSchedule::lift() {
  lifted_ = true;
}

void MicrobatchSchedule::enter(const Phase& phase) {
  if (phase == phase_) return;
  phase_ = phase;
  lifted_ = false;
  running_.clear();
  seen_.clear();
}

bool MicrobatchSchedule::hold_forward(const TaskPtr& task) {
  if (kind_ != OrderKind::k1F1B || !task->train()) return false;
  enter(task->id.microbatch.phase);
  if (!lifted_ && running_.size() >= running_max_) {
    forwards_.push_back(task);
    return true;
  }
  running_.insert(task->id);
  return false;
}

bool MicrobatchSchedule::hold_backward(const TaskPtr& task) {
  if (kind_ != OrderKind::kGPipe || !last_ || !task->train()) return false;
  enter(task->id.microbatch.phase);
  if (task->id.microbatch.index % members_ == rank_) seen_.insert(task->id.microbatch.index);
  backwards_.push_back(task);
  return true;
}

void MicrobatchSchedule::on_over(const TaskPtr& task) {
  std::erase(forwards_, task);
  std::erase(backwards_, task);
  if (kind_ == OrderKind::kFree || task->id.microbatch.phase != phase_) return;
  running_.erase(task->id);
  if (task->id.microbatch.index % members_ == rank_) seen_.insert(task->id.microbatch.index);
}

bool MicrobatchSchedule::all_forwards_done() const {
  const std::uint32_t share =
      rank_ < microbatches_ ? (microbatches_ - rank_ + members_ - 1) / members_ : 0;
  return seen_.size() >= share;
}

MicrobatchSchedule::Ready MicrobatchSchedule::take_ready() {
  Ready ready;
  if (lifted_) {
    ready.forwards = std::exchange(forwards_, {});
  } else {
    const std::size_t room = running_max_ - std::min<std::size_t>(running_max_, running_.size());
    const auto end =
        forwards_.begin() + static_cast<std::ptrdiff_t>(std::min(room, forwards_.size()));
    ready.forwards.assign(forwards_.begin(), end);
    forwards_.erase(forwards_.begin(), end);
  }
  if (lifted_ || all_forwards_done()) {
    ready.backwards = std::exchange(backwards_, {});
    std::ranges::reverse(ready.backwards);
  }
  return ready;
}

}  // namespace swarmline
