// A child process that is started again when it dies, by a policy; with the same arguments, its
// output appended to the same file.
//   Ownership: destroying it kills what runs. Thread: one, the one of child_process.h. Units:
//   Instant.
//   Errors:    kIo with the system's reason, from start() and start_if_due().
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "node/child_process.h"
#include "node/restart_policy.h"

namespace swarmline {

class SupervisedProcess {
 public:
  static Result<SupervisedProcess> start(const std::string& name,
                                         const ChildProcess::Options& options,
                                         const RestartPolicy::Limits& limits, Instant now);

  const std::string& name() const { return name_; }
  const std::string& output_file() const { return options_.output_file; }
  // The exit code of the process that runs, once it has ended; each end is told once.
  std::optional<int> poll();
  // After an end: it will be started again, so long from now; nothing: it is given up.
  std::optional<Duration> plan_restart(Instant now);
  // Starts it when a planned restart is due. True: it was started.
  Result<bool> start_if_due(Instant now);
  // It runs, or will be started again.
  bool is_alive() const { return !ended_ || restart_at_; }
  int short_lives() const { return policy_.short_lives(); }
  void cancel_restart() { restart_at_.reset(); }

 private:
  SupervisedProcess(std::string name, ChildProcess::Options options,
                    const RestartPolicy::Limits& limits, ChildProcess process, Instant now);

  std::string name_;
  ChildProcess::Options options_;
  RestartPolicy policy_;
  ChildProcess process_;
  Instant started_;
  bool ended_ = false;
  std::optional<Instant> restart_at_;
};

}  // namespace swarmline
