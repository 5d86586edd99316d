#include "pipeline/stage/common/device_queue.h"

#include <memory>
#include <utility>

#include "base/check.h"

namespace swarmline {

DeviceQueue::DeviceQueue(Device& device) : device_(device) {}

DeviceQueue::~DeviceQueue() = default;

void DeviceQueue::submit(StageJob job) {
  if (stopped_ || cleared_) return;
  const bool control = job.job_class == JobClass::kControl;
  // An evaluation of version v computes on the same parameters as step v; it goes first.
  const PhaseKind kind_order =
      job.phase.kind == PhaseKind::kEval ? PhaseKind::kTrain : PhaseKind::kEval;
  const Key key{!control, control ? 0 : job.phase.step, control ? PhaseKind::kTrain : kind_order,
                job.job_class, next_sequence_++};
  waiting_.emplace(key, std::move(job));
  feed();
}

void DeviceQueue::drop(const Phase& phase) {
  std::erase_if(waiting_, [&](const auto& entry) {
    return entry.second.job_class != JobClass::kControl && entry.second.phase == phase;
  });
}

void DeviceQueue::stop() {
  stopped_ = true;
  waiting_.clear();
  guard_.drop_callbacks();
}

void DeviceQueue::clear(std::function<void()> done) {
  waiting_.clear();
  if (on_device_ == 0) return done();
  cleared_ = std::move(done);
}

void DeviceQueue::feed() {
  while (!stopped_ && on_device_ < kAheadJobs && !waiting_.empty()) {
    const bool can_wait = waiting_.begin()->second.job_class == JobClass::kWeightGradients;
    if (can_wait && on_device_ > 0) return;
    auto node = waiting_.extract(waiting_.begin());
    StageJob& next = node.mapped();
    ++on_device_;
    auto taken = device_.submit(std::move(next.job),
                                guard_.wrap([this, done = std::move(next.done)](JobReport report) {
                                  --on_device_;
                                  ++finished_;
                                  if (cleared_) {
                                    if (on_device_ == 0) std::exchange(cleared_, nullptr)();
                                    return;
                                  }
                                  const std::weak_ptr<const char> alive = guard_.watch();
                                  done(std::move(report));
                                  if (!alive.expired()) feed();
                                }));
    SWARMLINE_CHECK_MSG(taken.has_value(), "a device takes kAheadJobs jobs");
  }
}

}  // namespace swarmline
