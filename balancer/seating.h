// Which stage each peer serves: the first peers all at once, joiners one by one. Snapshot in, plan
// out.
//   Throughput of a stage = sum of its peers' speeds over the stage's cost; the run is as fast as
//   its slowest stage. Thread: any, stateless. Same snapshot, same plan; ties go to the lower stage
//   and the lower peer id.
//   Zones:   a joiner goes to a stage with up to kRedundancyCostMax more throughput than another
//            when that one gets its second zone, or host, by it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "balancer/redundancy.h"
#include "base/ids.h"
#include "base/result.h"

namespace swarmline {

struct StageFacts {
  double cost = 1;  // work of one microbatch at the stage, > 0: FLOPs, or any common unit
  std::uint64_t memory_bytes = 0;  // what a peer must hold to serve it
  std::uint32_t target = 0;        // peers wanted; 0: no target, the planner decides
};

struct PeerFacts {
  PeerId peer;
  double speed = 1;                // work per second, > 0, in the unit of StageFacts::cost
  std::uint64_t memory_bytes = 0;  // 0: unknown, fits everywhere
  std::optional<StageId> stage;    // where it serves now; empty: not seated
  Location at = {};
};

struct SwarmSnapshot {
  std::vector<StageFacts> stages;
  std::vector<PeerFacts> peers;
};

struct Seating {
  PeerId peer;
  StageId stage;
  constexpr auto operator<=>(const Seating&) const = default;
};

// Stage throughput (microbatches per second) with the peers seated as the snapshot says.
std::vector<double> stage_throughputs(const SwarmSnapshot& snapshot);

// Seats every peer of the snapshot (present seats are ignored), sorted by peer. Targets first, at
// least one peer a stage; peers beyond the targets go where throughput is lowest. Maximises the
// slowest stage's throughput, then the next one's: optimal when speeds are equal and memory fits
// everywhere, else the best that moves and swaps of peers find.
//   Errors: kRefused, saying how many peers or how much memory is missing, when a stage would stay
//   empty or a target unmet. Bounds: at most kSeatingRoundsMax passes over all pairs, none above
//   kSeatingSearchPeersMax peers.
inline constexpr int kSeatingSearchPeersMax = 512;
inline constexpr int kSeatingRoundsMax = 100;
Result<std::vector<Seating>> seat_peers(const SwarmSnapshot& snapshot);

// Where a newcomer helps most: an empty stage, then one below its target, then the lowest
// throughput, among those that fit its memory; of those that are about as fast, the one to whose
// redundancy it adds most. kRefused: none fits.
Result<StageId> place_joiner(const SwarmSnapshot& snapshot, const PeerFacts& joiner);
// The same where it is known what serves each stage, one entry a stage.
struct StageStaff {
  std::uint32_t peers = 0;
  double throughput = 0;                   // as of stage_throughputs()
  const LocationTally* located = nullptr;  // where they are; null: nobody knows
};
Result<StageId> place_joiner(std::span<const StageFacts> stages, std::span<const StageStaff> staff,
                             const PeerFacts& joiner);

}  // namespace swarmline
