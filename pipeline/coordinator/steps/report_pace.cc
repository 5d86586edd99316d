#include "pipeline/coordinator/steps/report_pace.h"

#include <algorithm>

namespace swarmline {

void ReportPace::on_report(std::uint64_t step, Instant now) {
  const auto [running, is_first] = running_.try_emplace(step, Running{.last = now, .longest = {}});
  running->second.longest = std::max(running->second.longest, now - running->second.last);
  running->second.last = now;
}

void ReportPace::on_complete(std::uint64_t step) {
  const auto running = running_.find(step);
  if (running == running_.end()) return;
  pauses_.add(running->second.longest);
  running_.erase(running);
}

std::optional<Instant> ReportPace::last_report(std::uint64_t step) const {
  const auto running = running_.find(step);
  return running == running_.end() ? std::nullopt : std::optional(running->second.last);
}

}  // namespace swarmline
