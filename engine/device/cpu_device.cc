#include "engine/device/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <sys/prctl.h>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace swarmline {
namespace {

using SteadyClock = std::chrono::steady_clock;

// The kernel may wake sleepers that much late; its default of 50 us is a visible share of an
// emulated millisecond.
constexpr unsigned long kTimerSlackNs = 1000;

Result<void> run_part(const std::function<Result<void>()>& part) {
  try {
    return part();
  } catch (const std::exception& error) {
    return fail(ErrorCode::kDevice, error.what());
  } catch (...) {
    return fail(ErrorCode::kDevice, "a job threw something that is no std::exception");
  }
}

}  // namespace

class CpuDevice::Worker {
 public:
  Worker(Runtime& runtime, CpuDeviceOptions options)
      : runtime_(runtime), options_(std::move(options)), rng_(options_.seed) {
    SWARMLINE_CHECK(options_.emulation.jitter >= 0 && options_.emulation.jitter < 1);
    thread_ = std::thread([this] { run(); });
  }
  ~Worker() { stop(); }

  Result<void> submit(Job job, std::function<void(JobReport)> on_done) {
    if (stopped_) return fail(ErrorCode::kRefused, "the device has been stopped");
    if (*queued_ >= options_.queue_jobs_max) {
      return fail(ErrorCode::kRefused, "the device's queue is full");
    }
    ++*queued_;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({.job = std::move(job),
                       .on_done = std::move(on_done),
                       .submitted = SteadyClock::now(),
                       .begun = {},
                       .result = {}});
    }
    wake_.notify_one();
    return {};
  }

  void stop() {
    if (stopped_) return;
    stopped_ = true;
    std::deque<Entry> dropped;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      dropped.swap(jobs_);
    }
    wake_.notify_all();
    thread_.join();
    if (ender_.joinable()) ender_.join();
    for (Entry& entry : dropped) {
      complete(std::move(entry), {fail(ErrorCode::kStopped, "the device was stopped first"), {}});
    }
  }

  void slow_down(double factor) {
    SWARMLINE_CHECK(factor >= 1);
    slowness_.store(factor, std::memory_order_relaxed);
  }
  int queued() const { return *queued_; }
  Duration busy_total() const { return Duration(busy_ns_.load(std::memory_order_relaxed)); }
  const std::string& name() const { return options_.name; }

 private:
  struct Entry {
    Job job;
    std::function<void(JobReport)> on_done;
    SteadyClock::time_point submitted;
    SteadyClock::time_point begun;
    Result<void> result;  // of the body
  };

  void run() {
    prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
    if (options_.on_thread_start) options_.on_thread_start();
    while (auto entry = take()) {
      entry->begun = SteadyClock::now();
      entry->result = run_part(entry->job.body);
      if (entry->job.finish && !is_emulated() && !ender_.joinable())
        ender_ = std::thread([this] { end_all(); });
      if (ender_.joinable()) {
        hand_over(std::move(*entry));
      } else {
        end(std::move(*entry));
      }
    }
    const std::lock_guard lock(mutex_);
    all_begun_ = true;
    more_begun_.notify_one();
  }

  void hand_over(Entry entry) {
    {
      const std::lock_guard lock(mutex_);
      begun_.push_back(std::move(entry));
    }
    more_begun_.notify_one();
  }

  // The second thread: what has begun comes to its end, whatever is dropped behind it.
  void end_all() {
    prctl(PR_SET_TIMERSLACK, kTimerSlackNs, 0, 0, 0);
    if (options_.on_thread_start) options_.on_thread_start();
    std::unique_lock lock(mutex_);
    for (;;) {
      more_begun_.wait(lock, [this] { return all_begun_ || !begun_.empty(); });
      if (begun_.empty()) return;
      Entry entry = std::move(begun_.front());
      begun_.pop_front();
      lock.unlock();
      end(std::move(entry));
      lock.lock();
    }
  }

  Result<void> finish(Job& job) {
    if (job.computed) {
      SWARMLINE_TRY(run_part(job.computed));
      runtime_.post(std::exchange(job.on_computed, nullptr));
    }
    return run_part(job.finish);
  }

  void end(Entry entry) {
    if (entry.result && entry.job.finish) entry.result = finish(entry.job);
    const Duration computed = SteadyClock::now() - std::max(entry.begun, last_end_);
    const Duration service =
        hold(entry.submitted, computed, emulated_time(entry.job.kind, computed));
    last_end_ = SteadyClock::now();
    busy_ns_.fetch_add(service.count(), std::memory_order_relaxed);
    Result<void> result = std::move(entry.result);
    complete(std::move(entry), {std::move(result), service});
  }

  std::optional<Entry> take() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return std::nullopt;
    Entry entry = std::move(jobs_.front());
    jobs_.pop_front();
    return entry;
  }

  bool is_emulated() const {
    return options_.emulation.forward > Duration{} || options_.emulation.backward > Duration{};
  }

  Duration emulated_time(JobKind kind, Duration computed) {
    const Emulation& emulation = options_.emulation;
    const double slowness = slowness_.load(std::memory_order_relaxed);
    Duration set{};
    if (kind == JobKind::kForward) set = emulation.forward;
    if (const double share = backward_share(kind); share > 0)
      set = from_seconds(share * to_seconds(emulation.backward));
    if (slowness > 1) set = std::max(set, computed);
    if (set == Duration{} || (emulation.jitter == 0 && slowness == 1)) return set;
    const double jitter =
        emulation.jitter == 0 ? 1 : 1 + emulation.jitter * (2 * rng_.uniform() - 1);
    return from_seconds(to_seconds(set) * jitter * slowness);
  }

  // An emulated device keeps its own time: a job begins when it was submitted or when the one
  // before it ended by that time, so that neither a thread that wakes late nor a busy machine makes
  // the device slower than it is set to be.
  Duration hold(SteadyClock::time_point submitted, Duration computed, Duration emulated) {
    if (computed >= emulated) {
      free_at_ = SteadyClock::now();
      return computed;
    }
    free_at_ = std::max(free_at_, submitted) + emulated;
    hold_until(free_at_);
    return emulated;
  }

  void hold_until(SteadyClock::time_point end) {
    if (SteadyClock::now() >= end) return;
    std::unique_lock lock(mutex_);
    wake_.wait_until(lock, end, [this] { return stopping_; });
  }

  // The posted function may run after this object is gone, so it keeps only the shared counter. It
  // takes the job along: what its parts own dies on the control thread, before its completion
  // runs.
  void complete(Entry entry, JobReport report) {
    runtime_.post([queued = queued_, job = std::move(entry.job), on_done = std::move(entry.on_done),
                   report = std::move(report)]() mutable {
      --*queued;
      job = {};
      on_done(std::move(report));
    });
  }

  Runtime& runtime_;
  const CpuDeviceOptions options_;
  Rng rng_;                                                 // the thread where jobs end
  SteadyClock::time_point free_at_;                         // the thread where jobs end
  SteadyClock::time_point last_end_;                        // the same
  std::shared_ptr<int> queued_ = std::make_shared<int>(0);  // the control thread
  bool stopped_ = false;                                    // the control thread
  std::atomic<std::int64_t> busy_ns_ = 0;
  std::atomic<double> slowness_ = 1;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable more_begun_;
  std::deque<Entry> jobs_;   // under mutex_
  std::deque<Entry> begun_;  // under mutex_; the second thread ends them
  bool stopping_ = false;    // under mutex_
  bool all_begun_ = false;   // under mutex_
  std::thread thread_;
  std::thread ender_;  // the first thread starts it
};

CpuDevice::CpuDevice(Runtime& runtime, CpuDeviceOptions options)
    : worker_(std::make_unique<Worker>(runtime, std::move(options))) {}
CpuDevice::~CpuDevice() = default;

Result<void> CpuDevice::submit(Job job, std::function<void(JobReport)> on_done) {
  return worker_->submit(std::move(job), std::move(on_done));
}
int CpuDevice::queued() const {
  return worker_->queued();
}
Duration CpuDevice::busy_total() const {
  return worker_->busy_total();
}
std::string CpuDevice::name() const {
  return worker_->name();
}
void CpuDevice::stop() {
  worker_->stop();
}
void CpuDevice::slow_down(double factor) {
  worker_->slow_down(factor);
}

}  // namespace swarmline
