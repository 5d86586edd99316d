#include "sim/doors/sim_device.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"

namespace swarmline {
namespace {

Result<void> run_part(const std::function<Result<void>()>& part) {
  try {
    return part();
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
    if (begins || jobs.empty()) return;
    begins = true;
    if (jobs.front().job.finish)
      return runtime.post([self = shared_from_this()] { self->begin(); });
    const Duration service = service_time(jobs.front().job);
    const Duration wait = std::max<Duration>(Duration{}, compute_free - runtime.now());
    compute_free = runtime.now() + wait + service;
    // Held by the timer: jobs in flight outlive the SimDevice object, as on a real device until
    // stop() returns.
    runtime.call_after(wait + service,
                       [self = shared_from_this(), service] { self->end_first(service); });
  }

  Entry take_first() {
    Entry entry = std::move(jobs.front());
    jobs.pop_front();
    begins = false;
    return entry;
  }

  // Nothing waits for it but its completion, which waits for those before it.
  void end_first(Duration service) {
    Entry entry = take_first();
    busy += service;
    Result<void> result = run_part(entry.job.body);
    JobReport report{std::move(result), service};
    if (last_end <= runtime.now()) {
      complete(std::move(entry.on_done), std::move(report));
    } else {
      runtime.call_after(last_end - runtime.now(),
                         [self = shared_from_this(), on_done = std::move(entry.on_done),
                          report = std::move(report)] { self->complete(on_done, report); });
    }
    start_next();
  }

  void begin() {
    auto entry = std::make_shared<Entry>(take_first());
    auto result = std::make_shared<Result<void>>(run_part(entry->job.body));
    const Instant now = runtime.now();
    Instant end = now;
    Duration service{};
    if (*result) {
      service = service_time(entry->job);
      // What weight gradients are made of is there, and they stay.
      const bool crosses = entry->job.kind != JobKind::kWeightGradients;
      if (crosses) in_free = std::max(now, in_free) + options.way_in;
      compute_free = std::max(crosses ? in_free : now, compute_free) + service;
      if (crosses) out_free = std::max(compute_free, out_free) + options.way_out;
      end = std::max(compute_free, out_free);
    }
    last_end = std::max(end, last_end);
    if (*result && entry->job.computed)
      runtime.call_after(compute_free - now, [entry, result] {
        *result = run_part(entry->job.computed);
        if (*result) entry->job.on_computed();
      });
    runtime.call_after(last_end - now, [self = shared_from_this(), entry, result, service] {
      if (*result) *result = run_part(entry->job.finish);
      self->busy += service;
      self->complete(std::move(entry->on_done), {std::move(*result), service});
    });
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
  std::deque<Entry> jobs;                         // the first one runs, where one begins
  bool begins = false;                            // the first one's body is under way
  Instant in_free{}, compute_free{}, out_free{};  // of what has begun, in each lane
  Instant last_end{};                             // of what has begun
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
  state_->start_next();
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
  const std::size_t running = state_->begins ? 1 : 0;
  while (state_->jobs.size() > running) {
    auto on_done = std::move(state_->jobs[running].on_done);
    state_->jobs.erase(state_->jobs.begin() + static_cast<std::ptrdiff_t>(running));
    state_->complete(std::move(on_done),
                     {fail(ErrorCode::kStopped, "the device was stopped first"), Duration{}});
  }
}

}  // namespace swarmline
