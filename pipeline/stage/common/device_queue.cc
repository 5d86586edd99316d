#include "pipeline/stage/common/device_queue.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"

namespace swarmline {

DeviceQueue::DeviceQueue(Device& device) : device_(device) {}

DeviceQueue::~DeviceQueue() = default;

std::uint64_t DeviceQueue::submit(StageJob job) {
  if (stopped_ || cleared_) return 0;
  const std::uint64_t name = next_sequence_++;
  waiting_.emplace(key_of(job, name), std::move(job));
  feed();
  return name;
}

bool DeviceQueue::withdraw(std::uint64_t job) {
  return std::erase_if(waiting_,
                       [&](const auto& entry) { return std::get<4>(entry.first) == job; }) > 0;
}

DeviceQueue::Key DeviceQueue::key_of(const StageJob& job, std::uint64_t sequence) {
  const bool control = job.job_class == JobClass::kControl;
  // An evaluation of version v computes on the same parameters as step v; it goes first.
  const PhaseKind kind_order =
      job.phase.kind == PhaseKind::kEval ? PhaseKind::kTrain : PhaseKind::kEval;
  return {!control, control ? 0 : job.phase.step, control ? PhaseKind::kTrain : kind_order,
          job.job_class, sequence};
}

void DeviceQueue::hurry_weight_gradients(const Phase& phase) {
  const auto oldest = std::ranges::find_if(waiting_, [&](const auto& entry) {
    return entry.second.job_class == JobClass::kWeightGradients && entry.second.phase == phase;
  });
  if (oldest == waiting_.end()) return;
  auto node = waiting_.extract(oldest);
  node.mapped().job_class = JobClass::kBackward;
  node.key() = key_of(node.mapped(), std::get<4>(node.key()));
  waiting_.insert(std::move(node));
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

void DeviceQueue::on_job(JobClass job_class, Duration service) {
  constexpr double kNewest = 0.1;
  double& usual = usual_seconds_[static_cast<std::size_t>(job_class)];
  usual += (usual == 0 ? 1 : kNewest) * (to_seconds(service) - usual);
}

Duration DeviceQueue::backlog() const {
  double seconds = 0;
  for (const auto& [key, job] : waiting_)
    if (job.job_class != JobClass::kControl && job.job_class != JobClass::kMonitor)
      seconds += usual_seconds_[static_cast<std::size_t>(job.job_class)];
  return from_seconds(seconds);
}

std::function<void()> DeviceQueue::when_computed(std::shared_ptr<bool> is_computed) {
  return guard_.wrap([this, is_computed = std::move(is_computed)] {
    *is_computed = true;
    --not_computed_;
    feed();
  });
}

void DeviceQueue::feed() {
  while (!stopped_ && not_computed_ < kAheadJobs && on_device_ < kOnDeviceMax &&
         !waiting_.empty()) {
    const bool can_wait = waiting_.begin()->second.job_class == JobClass::kWeightGradients;
    // The last place is a pass's that comes meanwhile.
    if (can_wait && (not_computed_ > 0 || on_device_ + 1 == kOnDeviceMax)) return;
    auto node = waiting_.extract(waiting_.begin());
    StageJob& next = node.mapped();
    ++on_device_;
    ++not_computed_;
    auto is_computed = std::make_shared<bool>(false);
    if (next.job.computed) next.job.on_computed = when_computed(is_computed);
    const JobKind kind = next.job.kind;
    const JobClass job_class = next.job_class;
    auto taken = device_.submit(std::move(next.job),
                                guard_.wrap([this, kind, job_class, is_computed,
                                             done = std::move(next.done)](JobReport report) {
                                  --on_device_;
                                  if (!*is_computed) --not_computed_;
                                  slowdown_.on_job(kind, report.service);
                                  on_job(job_class, report.service);
                                  ++finished_;
                                  if (cleared_) {
                                    if (on_device_ == 0) std::exchange(cleared_, nullptr)();
                                    return;
                                  }
                                  const std::weak_ptr<const char> alive = guard_.watch();
                                  done(std::move(report));
                                  if (!alive.expired()) feed();
                                }));
    SWARMLINE_CHECK_MSG(taken.has_value(), "a device takes kOnDeviceMax jobs");
  }
}

}  // namespace swarmline
