#include "tools/chaos/chaos_faults.h"

#include <fmt/format.h>

namespace swarmline {

std::vector<PendingFault> pending_faults(const ChaosPlan& plan, Rng& rng) {
  std::vector<PendingFault> pending;
  for (const ChaosFault& fault : plan.faults) pending.push_back({.fault = fault});
  const RandomChaos& random = plan.random;
  for (std::uint64_t i = 0; i < random.count; ++i) {
    ChaosFault fault;
    fault.name = fmt::format("random-{}", i + 1);
    fault.kind = random.kinds[rng.below(random.kinds.size())];
    fault.at_seconds = random.after + random.seconds * (static_cast<double>(i) + rng.uniform()) /
                                          static_cast<double>(random.count);
    fault.seconds = random.longest * (0.25 + 0.75 * rng.uniform());
    fault.factor = random.factor;
    pending.push_back({.fault = fault, .drawn = true});
  }
  return pending;
}

std::string point_text(const ChaosFault& fault, std::uint64_t step) {
  if (!fault.phase) return {};
  switch (*fault.phase) {
    case ChaosPhase::kJoining:
      return ", joining";
    case ChaosPhase::kDownload:
      return ", downloading the state";
    case ChaosPhase::kStart:
      return ", ready for the start";
    case ChaosPhase::kTakeover:
      return ", taken over by a coordinator";
    case ChaosPhase::kLastCheckpoint:
    case ChaosPhase::kCheckpoint:
      return fmt::format(", writing checkpoint {}", step);
    case ChaosPhase::kReduce:
      return fmt::format(", averaging step {}", step + 1);
    case ChaosPhase::kCommit:
      return fmt::format(", committing step {}", step + 1);
    case ChaosPhase::kForward:
    case ChaosPhase::kBackward:
      break;
  }
  return fmt::format(", {} of step {}", to_string(*fault.phase), step + 1);
}

}  // namespace swarmline
