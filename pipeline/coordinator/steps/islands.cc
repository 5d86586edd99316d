#include "pipeline/coordinator/steps/islands.h"

#include <algorithm>
#include <map>

#include "base/marks.h"
#include "engine/collective/island.h"

namespace swarmline {

std::vector<std::uint32_t> islands_of(std::span<const std::string> hosts) {
  struct Island {
    std::uint32_t speaker = 0;
    std::uint32_t members = 0;
  };
  std::map<std::string, Island> newest;  // by host
  std::vector<std::uint32_t> speakers;
  bool any = false, nameless = false;
  for (std::uint32_t rank = 0; rank < hosts.size(); ++rank) {
    nameless = nameless || hosts[rank].empty();
    Island& island = newest[hosts[rank]];
    if (hosts[rank].empty() || island.members == 0 || island.members == kIslandMembersMax)
      island = {.speaker = rank, .members = 0};
    ++island.members;
    any = any || island.members > 1;
    speakers.push_back(island.speaker);
  }
  if (!any || (newest.size() == 1 && !nameless)) return {};
  SWARMLINE_MARK("islands.formed");
  return speakers;
}

bool all_on_one(std::span<const std::string> hosts) {
  return hosts.size() > 1 && hosts.size() <= kIslandMembersMax && !hosts.front().empty() &&
         std::ranges::all_of(hosts, [&](const auto& host) { return host == hosts.front(); });
}

}  // namespace swarmline
