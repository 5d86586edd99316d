#include "pipeline/coordinator/steps/island_fabrics.h"

#include <algorithm>
#include <utility>

#include "base/marks.h"
#include "engine/collective/island.h"

namespace swarmline {
namespace {

static_assert(kFabricRanksMax == kIslandMembersMax);

// A coordinator's term is the upper half.
constexpr unsigned kTermShift = 32;

// Parts of a slice, which has an element more than its share at most, wait where the region is.
bool has_room(std::uint64_t elements, std::size_t members) {
  return elements >= members * members;
}

std::vector<FabricKind> kinds_of(std::uint64_t elements, const std::vector<std::uint32_t>& speakers,
                                 const std::vector<GpuIdentity>& gpus) {
  std::map<std::uint32_t, std::vector<GpuIdentity>> islands;  // by who speaks for them
  for (std::size_t rank = 0; rank < speakers.size(); ++rank)
    islands[speakers[rank]].push_back(gpus[rank]);
  std::vector<FabricKind> kinds;
  for (const std::uint32_t speaker : speakers) {
    const auto& island = islands.at(speaker);
    kinds.push_back(has_room(elements, island.size()) ? fabric_of(island) : FabricKind::kNone);
  }
  const bool any =
      std::ranges::any_of(kinds, [](FabricKind kind) { return kind != FabricKind::kNone; });
  return any ? kinds : std::vector<FabricKind>();
}

}  // namespace

FabricKind fabric_of(std::span<const GpuIdentity> island) {
  if (island.size() < 2 || island.size() > kFabricRanksMax) return FabricKind::kNone;
  std::set<std::string> gpus;
  bool nccl = true, ipc = true;
  for (const GpuIdentity& gpu : island) {
    if (gpu.uuid.empty()) return FabricKind::kNone;
    gpus.insert(gpu.uuid);
    nccl = nccl && gpu.nccl != 0 && gpu.nccl == island.front().nccl;
    ipc = ipc && gpu.ipc;
  }
  if (nccl && gpus.size() == island.size()) return FabricKind::kNccl;
  return ipc ? FabricKind::kIpc : FabricKind::kNone;
}

IslandFabrics::Told IslandFabrics::tell(GroupId group, std::uint64_t elements,
                                        const std::vector<Seat>& members,
                                        const std::vector<std::uint32_t>& speakers,
                                        const std::vector<GpuIdentity>& gpus) {
  Group& known = groups_[group];
  const bool skips = std::exchange(known.skips, false) || known.failures >= kFabricFailuresMax;
  std::vector<FabricKind> kinds =
      skips ? std::vector<FabricKind>() : kinds_of(elements, speakers, gpus);
  const bool same = known.went_well && known.members == members && known.told.kinds == kinds;
  known.went_well = known.disturbed = false;
  if (same) return known.told;
  SWARMLINE_MARK("island_fabrics.meet_anew");
  known.members = members;
  known.told = {.kinds = std::move(kinds), .meeting = term_.value << kTermShift | ++meetings_};
  return known.told;
}

void IslandFabrics::on_failed(GroupId group) {
  Group& known = groups_[group];
  ++known.failures;
  known.skips = true;
  if (known.failures == kFabricFailuresMax) SWARMLINE_MARK("island_fabrics.given_up");
}

void IslandFabrics::on_committed() {
  for (auto& [group, known] : groups_) {
    known.went_well = !known.disturbed;
    if (!known.told.kinds.empty() && known.failures < kFabricFailuresMax) known.failures = 0;
  }
}

void IslandFabrics::on_rollback() {
  for (auto& [group, known] : groups_) known.went_well = false;
}

}  // namespace swarmline
