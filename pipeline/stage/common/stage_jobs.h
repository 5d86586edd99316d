// Control jobs of one stage: work between its microbatches, in order, that ends the peer when it
// fails.
//   Thread:    control thread; bodies run on the device's.
//   Ownership: the queue outlives it. Bodies may refer to what the stage owns: the stage outlives
//              its jobs, or silences them and waits until the device has let go of them.
//   Errors:    a body's error goes to `fail` of the context. Bounds: a few jobs per phase.
#pragma once

#include <functional>
#include <utility>

#include "base/callback_guard.h"
#include "pipeline/stage/common/stage_context.h"

namespace swarmline {

class StageJobs {
 public:
  explicit StageJobs(StageContext& context) : context_(context) {}

  void run(std::function<Result<void>()> body, std::function<void()> done) {
    StageJob job;
    job.job.kind = JobKind::kOther;
    job.job.body = std::move(body);
    job.done = guard_.wrap([this, done = std::move(done)](const JobReport& report) {
      if (!report.result) return context_.fail(report.result.error());
      done();
    });
    context_.queue.submit(std::move(job));
  }
  // `done` once all jobs before it have ended.
  void barrier(std::function<void()> done) {
    run([]() -> Result<void> { return {}; }, std::move(done));
  }
  // What is on its way ends unheard.
  void silence() { guard_.drop_callbacks(); }

 private:
  StageContext& context_;
  CallbackGuard guard_;
};

}  // namespace swarmline
