// This process's threads as a Device: one runs bodies, and the first job with a finish starts one
// for these. While an emulated job has computed and still holds the device, the thread sleeps;
// an emulated device finishes each job before it begins the next.
//   Ownership: the Runtime outlives the device. Destroying it stops it; completions still come
//              through the Runtime.
//   Thread:    as engine/device/device.h; busy_total() from any.
//   Errors, bounds: as engine/device/device.h. stop() cuts an emulated sleep short.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/limits.h"
#include "engine/device/device.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

struct CpuDeviceOptions {
  std::string name = "cpu";
  Emulation emulation;
  std::uint64_t seed = 0;                 // of the emulation's jitter
  std::function<void()> on_thread_start;  // runs first on the device's thread (a compute library's
                                          // per-thread settings)
  int queue_jobs_max = Limits::device_queue_jobs_max;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(Runtime& runtime, CpuDeviceOptions options);
  ~CpuDevice() override;

  Result<void> submit(Job job, std::function<void(JobReport)> on_done) override;
  int queued() const override;
  Duration busy_total() const override;
  std::string name() const override;
  void stop() override;
  // From the next job on each holds the device `factor` (>= 1) times as long. Any thread.
  void slow_down(double factor);

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace swarmline
