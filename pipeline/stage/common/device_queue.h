// What a peer's device does next: control work first, then older steps before newer, backward
// before forward before weight gradients that were left for later before measurements, then in the
// order of arrival. Hands the device at most kAheadJobs that it has not computed yet, so that a
// gradient that arrives late still goes first; what was left for later only when it has computed
// all, whose tensors may still be on their way out. So nothing waits for more than one job of that.
//   Thread:  control thread. Errors: a job's Result goes to its `done`. Dropped jobs: neither body
//            nor done run.
//   Bounds:  the owner admits by bytes; control jobs are a few per phase.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "base/callback_guard.h"
#include "base/ids.h"
#include "engine/device/device.h"
#include "pipeline/stage/common/slowdown.h"

namespace swarmline {

enum class JobClass : std::uint8_t {
  kControl = 0,
  kBackward = 1,
  kForward = 2,
  kWeightGradients = 3,
  kMonitor = 4
};

struct StageJob {
  JobClass job_class = JobClass::kControl;
  Phase phase;
  Job job;
  std::function<void(JobReport)> done;
};

class DeviceQueue {
 public:
  static constexpr int kAheadJobs = 2;
  static constexpr int kOnDeviceMax = 3;  // with those that are computed and not over

  explicit DeviceQueue(Device& device);
  ~DeviceQueue();
  // Returns the job's name for withdraw(); 0 after stop() and before clear() is done.
  std::uint64_t submit(StageJob job);
  // Neither body nor done run. False: it is on the device, or over.
  bool withdraw(std::uint64_t job);
  // The oldest of the weight gradients of `phase` that wait goes before more is computed: they are
  // added in the order in which they came, or sums would depend on who was fast.
  void hurry_weight_gradients(const Phase& phase);
  // Drops the waiting jobs of `phase` but control work; those on the device run to their end.
  void drop(const Phase& phase);
  void stop();
  // Drops everything that waits and the completions of what is on the device; `done` once that has
  // ended and nothing refers to the stage any more. Then jobs are taken again.
  void clear(std::function<void()> done);
  std::size_t waiting() const { return waiting_.size(); }
  // Device time of the microbatches' jobs that wait, as such jobs took; nothing for a class of
  // which none has ended. One look at each job that waits.
  Duration backlog() const;
  std::size_t unfinished() const { return waiting_.size() + static_cast<std::size_t>(on_device_); }
  std::uint64_t finished() const { return finished_; }
  const Slowdown& slowdown() const { return slowdown_; }

 private:
  using Key = std::tuple<bool, std::uint64_t, PhaseKind, JobClass, std::uint64_t>;
  static Key key_of(const StageJob& job, std::uint64_t sequence);
  void feed();
  void on_job(JobClass job_class, Duration service);
  std::function<void()> when_computed(std::shared_ptr<bool> is_computed);

  static constexpr std::size_t kClasses = static_cast<std::size_t>(JobClass::kMonitor) + 1;

  Device& device_;
  std::map<Key, StageJob> waiting_;
  std::uint64_t next_sequence_ = 1;
  int on_device_ = 0;
  int not_computed_ = 0;  // of these
  std::uint64_t finished_ = 0;
  Slowdown slowdown_;
  std::array<double, kClasses> usual_seconds_{};  // of a job; 0: none has ended
  bool stopped_ = false;
  std::function<void()> cleared_;
  CallbackGuard guard_;
};

}  // namespace swarmline
