#include "node/supervised_process.h"

#include <utility>

namespace swarmline {

SupervisedProcess::SupervisedProcess(std::string name, ChildProcess::Options options,
                                     const RestartPolicy::Limits& limits, ChildProcess process,
                                     Instant now)
    : name_(std::move(name)),
      options_(std::move(options)),
      policy_(limits),
      process_(std::move(process)),
      started_(now) {}

Result<SupervisedProcess> SupervisedProcess::start(const std::string& name,
                                                   const ChildProcess::Options& options,
                                                   const RestartPolicy::Limits& limits,
                                                   Instant now) {
  auto process = ChildProcess::start(options);
  if (!process) return std::unexpected(std::move(process).error());
  return SupervisedProcess(name, options, limits, std::move(*process), now);
}

std::optional<int> SupervisedProcess::poll() {
  if (ended_) return std::nullopt;
  const std::optional<int> code = process_.poll();
  ended_ = code.has_value();
  return code;
}

std::optional<Duration> SupervisedProcess::plan_restart(Instant now) {
  const std::optional<Duration> pause = policy_.died(now - started_);
  if (pause) restart_at_ = now + *pause;
  return pause;
}

Result<bool> SupervisedProcess::start_if_due(Instant now) {
  if (!restart_at_ || now < *restart_at_) return false;
  restart_at_.reset();
  auto process = ChildProcess::start(options_);
  if (!process) return std::unexpected(std::move(process).error());
  process_ = std::move(*process);
  started_ = now;
  ended_ = false;
  return true;
}

}  // namespace swarmline
