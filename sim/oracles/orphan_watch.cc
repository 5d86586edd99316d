#include "sim/oracles/orphan_watch.h"

#include <utility>

namespace swarmline {

std::optional<MicrobatchId> OrphanWatch::sample(Instant now,
                                                const std::set<MicrobatchId>& relied_on,
                                                const std::set<MicrobatchId>& tried, bool calm) {
  const std::map<MicrobatchId, Instant> before = std::exchange(since_, {});
  if (!calm) return std::nullopt;
  for (const MicrobatchId& id : relied_on) {
    if (tried.contains(id)) continue;
    const auto known = before.find(id);
    const Instant since = known == before.end() ? now : known->second;
    since_.emplace(id, since);
    if (now - since > patience_) return id;
  }
  return std::nullopt;
}

}  // namespace swarmline
