#include "sim/doors/sim_device.h"

#include <exception>
#include <utility>

#include "base/check.h"

namespace swarmline {
namespace {

Result<void> run_body(const Job& job) {
  try {
    return job.body();
  } catch (const std::exception& error) {
    return fail(ErrorCode::kDevice, error.what());
  }
}

}  // namespace

struct SimDevice::State : std::enable_shared_from_this<State> {
  struct Entry {
    Job job;
    std::function<void(JobReport)> on_done;
  };

  State(Runtime& r, SimDeviceOptions o)
      : runtime(r),
        options(std::move(o)),
        rng(options.seed),
        control_rng(Rng(options.seed).split("control")) {}

  Duration service_time(const Job& job) {
    Duration base;
    if (const auto said = options.service ? options.service(job.kind) : std::nullopt) {
      base = *said;
    } else if (job.kind == JobKind::kForward && options.forward) {
      base = *options.forward;
    } else if (backward_share(job.kind) > 0 && options.backward) {
      base = from_seconds(backward_share(job.kind) * to_seconds(*options.backward));
    } else if (options.control > Duration{} && job.estimate == Duration{}) {
      base = from_seconds(2 * control_rng.uniform() * to_seconds(options.control));
    } else {
      base = from_seconds(to_seconds(job.estimate) / options.speed);
    }
    if (options.jitter == 0 && slowness == 1) return base;
    const double jitter = options.jitter == 0 ? 1 : 1 + options.jitter * (2 * rng.uniform() - 1);
    return from_seconds(to_seconds(base) * jitter * slowness);
  }

  void start_next() {
    if (jobs.empty()) return;
    const Duration service = service_time(jobs.front().job);
    // Held by the timer: jobs in flight outlive the SimDevice object, as on a real device until
    // stop() returns.
    runtime.call_after(service, [self = shared_from_this(), service] { self->end_first(service); });
  }

  void end_first(Duration service) {
    Entry entry = std::move(jobs.front());
    jobs.pop_front();
    busy += service;
    Result<void> result = run_body(entry.job);
    complete(std::move(entry.on_done), {std::move(result), service});
    start_next();
  }

  void complete(std::function<void(JobReport)> on_done, JobReport report) {
    runtime.post(
        [self = shared_from_this(), on_done = std::move(on_done), report = std::move(report)] {
          --self->queued;
          on_done(report);
        });
  }

  Runtime& runtime;
  SimDeviceOptions options;
  Rng rng, control_rng;
  std::deque<Entry> jobs;  // the first one is running
  int queued = 0;
  Duration busy{};
  double slowness = 1;
  bool stopped = false;
};

SimDevice::SimDevice(Runtime& runtime, SimDeviceOptions options) {
  SWARMLINE_CHECK(options.speed > 0);
  SWARMLINE_CHECK(options.jitter >= 0 && options.jitter < 1);
  state_ = std::make_shared<State>(runtime, std::move(options));
}

SimDevice::~SimDevice() {
  stop();
}

Result<void> SimDevice::submit(Job job, std::function<void(JobReport)> on_done) {
  if (state_->stopped) return fail(ErrorCode::kRefused, "the device has been stopped");
  if (state_->queued >= state_->options.queue_jobs_max) {
    return fail(ErrorCode::kRefused, "the device's queue is full");
  }
  ++state_->queued;
  state_->jobs.push_back({std::move(job), std::move(on_done)});
  if (state_->jobs.size() == 1) state_->start_next();
  return {};
}

int SimDevice::queued() const {
  return state_->queued;
}
double SimDevice::slowness() const {
  return state_->slowness;
}
Duration SimDevice::busy_total() const {
  return state_->busy;
}
std::string SimDevice::name() const {
  return state_->options.name;
}

void SimDevice::slow_down(double factor) {
  SWARMLINE_CHECK(factor > 0);
  state_->slowness = factor;
}

void SimDevice::stop() {
  state_->stopped = true;
  while (state_->jobs.size() > 1) {
    auto on_done = std::move(state_->jobs[1].on_done);
    state_->jobs.erase(state_->jobs.begin() + 1);
    state_->complete(std::move(on_done),
                     {fail(ErrorCode::kStopped, "the device was stopped first"), Duration{}});
  }
}

}  // namespace swarmline
