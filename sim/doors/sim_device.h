// A device in virtual time: one FIFO; a job holds it for its estimate divided by the device's speed
// (or for the time set for its kind), its body runs at the instant it ends, its completion right
// after. A job with a finish has its body run as soon as the body before it has; then its tensor is
// on its way in, it holds the device, its other tensor is on its way out, each in its lane; its
// finish runs at the end of all that, and of what went out before it. Weight gradients have no
// tensors: what they are made of is there, and they stay.
//   Everything else is as engine/device/device.h says. stop() lets the running job end at its
//   instant.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/limits.h"
#include "base/rng.h"
#include "engine/device/device.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

struct SimDeviceOptions {
  std::string name = "sim";
  double speed = 1;                 // 2: half the estimate
  std::optional<Duration> forward;  // instead of the estimate; not scaled by speed
  std::optional<Duration> backward;
  // Instead of all of these, where it says something; asked as a job starts.
  std::function<std::optional<Duration>(JobKind)> service;
  // The mean time of a job that is neither of these and has no estimate; at most twice that.
  Duration control{};
  // What a job with a finish takes in the lanes beside the device's; not scaled, without jitter.
  Duration way_in{};
  Duration way_out{};
  double jitter = 0;  // each time is multiplied by a uniform draw from [1 - j, 1 + j]
  std::uint64_t seed = 0;
  int queue_jobs_max = Limits::device_queue_jobs_max;
};

class SimDevice final : public Device {
 public:
  SimDevice(Runtime& runtime, SimDeviceOptions options);
  ~SimDevice() override;

  Result<void> submit(Job job, std::function<void(JobReport)> on_done) override;
  int queued() const override;
  Duration busy_total() const override;
  std::string name() const override;
  void stop() override;
  // From the next job on every job takes `factor` times as long. > 0.
  void slow_down(double factor);
  double slowness() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace swarmline
