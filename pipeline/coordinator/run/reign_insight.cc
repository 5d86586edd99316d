#include "pipeline/coordinator/run/reign_insight.h"

#include "pipeline/coordinator/run/status_report.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kStatusBytes = 64 * kKiB;  // of a run without peers
constexpr std::uint64_t kStatusBytesOfMember = 2 * kKiB;

}  // namespace

RunGlance glance_of(const CoordinatorParts& parts) {
  RunGlance glance;
  glance.recovering = parts.life.is<life::Recovering>();
  glance.trains = parts.life.is_running() || glance.recovering;
  glance.ended = parts.life.is<life::Ended>();
  glance.goes_back = parts.life.is<life::RollingBack>();
  glance.is_held_up = parts.writer.is_late(parts.alarms.now());
  glance.waits_given_up = parts.vigil.given_up() + parts.recovery.given_up() +
                          parts.takeovers.given_up() + parts.round.given_up();
  glance.era = parts.identity.era;
  glance.committed = Version{parts.sequence.committed()};
  return glance;
}

std::set<MicrobatchId> relying_on_tries(const CoordinatorParts& parts) {
  std::set<MicrobatchId> all;
  for (const Phase& phase : parts.ledger.open_phases())
    for (const std::uint32_t index : parts.ledger.relying_on_tries(phase))
      all.insert({phase, index});
  return all;
}

std::vector<NamedSize> sizes_of(const CoordinatorParts& parts) {
  const std::uint64_t members = parts.members.members().size();
  return {
      {"coordinator.members", members, Limits::peers_max + knobs().lost_peers_kept},
      {"coordinator.status_bytes",
       to_json(status_of(parts.status_sources(), "", parts.alarms.now())).size(),
       kStatusBytes + kStatusBytesOfMember * members},
      {"coordinator.held_messages", parts.recovery.held_messages(), Recovery::kHeldMax},
      {"coordinator.sessions", parts.sessions.size(), SessionTable::kSessionsMax},
      {"coordinator.seated", parts.sessions.seated().size(), members},
      {"coordinator.fences", parts.ledger.fences(), members},
      {"coordinator.watched", parts.detector.watched(), members},
      {"coordinator.stuck_peers", parts.detector.stuck_peers(), FailureDetector::kStuckPeersMax},
      {"coordinator.resting_hosts", parts.shadows.resting(), members},
      {"coordinator.speeds", parts.balancer.remembered(), 2 * std::uint64_t{Limits::peers_max}},
      {"coordinator.open_phases", parts.ledger.open_phases().size(), Ledger::kOpenPhasesMax},
  };
}

}  // namespace swarmline
