// The third door: compute. One bounded FIFO of jobs per device; jobs run one at a time, in order,
// off the control thread (real) or at their virtual completion instant (simulated).
//   Lanes:     what a body begins may go on by itself: tensors on their way in, products, tensors
//              on their way out, each lane in order and beside the others. Then the job has a
//              finish, which waits for the end of it. Bodies run one at a time, in order, and do
//              not wait for finishes; finishes run one at a time, in order, and beside bodies. A
//              body without a finish does all. Jobs complete in order. Before its finish, a job may
//              wait for its products alone, and say on the control thread that they are made.
//   Ownership: what a job's body references must stay alive and unwritten until its completion ran.
//   Thread:    submit() on the control thread; body on the device's thread; finish on a second one;
//              completion posted to the control thread.
//   Errors:    a body returns kDevice with a sentence, and nothing else of the job runs; exceptions
//              become kDevice; so in what waits for products, and in a finish. Full queue: submit()
//              returns kRefused and neither body nor completion run.
//   Bounds:    at most Limits::device_queue_jobs_max jobs submitted and not completed.
//   Emulation: with an Emulation, a job of kind forward/backward (or half of a backward)
//              holds the device for its set service time (times jitter) around the real one, by a
//              time that no late wake-up stretches; when the real one is longer, it counts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/units.h"

namespace swarmline {

enum class JobKind : std::uint8_t {
  kForward,
  kBackward,
  kInputGradient,    // a backward without its weight gradients, which a later job adds
  kWeightGradients,  // that job
  kReduce,
  kOptimizer,
  kOther
};

// Of the time set for a whole backward, the part that a job of this kind takes; 0: it is none. The
// halves are products of the same sizes.
constexpr double backward_share(JobKind kind) {
  if (kind == JobKind::kBackward) return 1;
  return kind == JobKind::kInputGradient || kind == JobKind::kWeightGradients ? 0.5 : 0;
}

struct Job {
  JobKind kind = JobKind::kOther;
  // Simulated devices charge this (scaled by the device's speed) instead of measuring; real ones
  // ignore it.
  Duration estimate{};
  std::function<Result<void>()> body;
  std::function<Result<void>()> finish = nullptr;  // of a body that only begins; empty: it does all
  // With a finish, before that: waits for the products, while tensors may be on their way out.
  // Both or neither: without them nothing is said before the completion.
  std::function<Result<void>()> computed = nullptr;
  std::function<void()> on_computed = nullptr;
};

struct JobReport {
  Result<void> result;
  Duration service{};  // how long the device was held; not by the job before as well
};

// `[peer] emulate`: 0 ms = not emulated. jitter j: each time is multiplied by a uniform draw from
// [1 - j, 1 + j].
struct Emulation {
  Duration forward{};
  Duration backward{};
  double jitter = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Result<void> submit(Job job, std::function<void(JobReport)> on_done) = 0;
  virtual int queued() const = 0;           // submitted and not completed
  virtual Duration busy_total() const = 0;  // sum of service times so far
  virtual std::string name() const = 0;
  // Waits for what has begun, drops the rest (their completions get kStopped).
  virtual void stop() = 0;
};

}  // namespace swarmline
