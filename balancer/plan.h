// Who should serve what from now on: snapshot in, plan out.
//   What:      Maximises the throughput of the slowest stage over a horizon, minus what each move
//              costs. Emptied stages first, then instant moves of peers that hold the wanted
//              stage's state as its shadow, then moves that download it, where they pay. Decides
//              too who follows which stage as a shadow, and who is too slow to wait for.
//   Throughput of a stage = sum of the speeds of those who serve it / its cost.
//   Units:     speeds in work per second, costs in work per microbatch; seconds; bytes; bits/s.
//   Thread:    any, stateless. Same snapshot, same plan; ties go to the lower stage and to the peer
//              that the snapshot names first.
//   Bounds:    PlanOptions::moves_max moves of those who serve and as many shadow changes; a step
//              of the search is O(peers x stages), with swaps O(peers^2 x stages) up to
//              kPlanSwapPeersMax peers.
//   Source:    the rule of the SWARM paper (its Algorithm 2: every T seconds one peer goes from the
//              least to the most loaded stage) with what it lacks: several moves a round, a price,
//              a threshold, no stage emptied, spares that know the stage already.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "balancer/redundancy.h"
#include "base/ids.h"

namespace swarmline {

inline constexpr std::size_t kPlanSwapPeersMax = 512;  // above that, no two peers change places

struct PlanStage {
  double cost = 1;                 // work of one microbatch, > 0
  std::uint64_t state_bytes = 0;   // parameters and optimizer state: what a newcomer downloads
  std::uint64_t memory_bytes = 0;  // what a peer must hold to serve it
};

struct PlanShadow {
  StageId stage;
  bool ready = false;  // follows every commit; false: still downloading
};

struct PlanPeer {
  PeerId peer;
  std::optional<StageId> stage;  // serves it, or will when what it downloads is there; empty: none
  bool arriving = false;         // on its way to `stage`: not counted yet, and not moved again
  double speed = 1;              // as measured on its stage, > 0
  double link_bits_per_second = 0;        // 0: PlanOptions::link_bits_per_second
  std::uint64_t memory_bytes = 0;         // 0: unknown, fits everywhere
  std::uint64_t shadow_memory_bytes = 0;  // host memory for shadows' state; 0: no bound known
  std::vector<PlanShadow> shadows;
  std::optional<StageId> barred = {};  // a stage that it can neither serve nor follow
  // For how long it has been under fail_slow_share of its stage mates; a retired peer keeps its
  // figure until somebody has measured it anew, and is not seated before.
  double slow_seconds = 0;
  // Its machine may be taken soon: no stage's state is safe with such peers alone.
  bool at_risk = false;
  Location at = {};
};

struct PlanSnapshot {
  std::vector<PlanStage> stages;
  std::vector<PlanPeer> peers;
};

struct PlanOptions {
  double horizon_seconds = 1800;  // how long a seating is expected to last
  double hysteresis = 0.02;       // a plan must gain this share of the present throughput
  // A move must gain more than this share when it leaves a stage with one holder of its state, or
  // with holders in one zone, or on one host, where it had two.
  double redundancy_worth = 0.25;
  // Of the horizon's throughput: what a move may cost that only gives a stage its second zone. 0:
  // nobody moves for that.
  double spread_cost_max = 0.01;
  std::uint32_t moves_max = 64;  // of those who serve; newcomers are all seated
  // Empty: auto, one, and two where few serve, hosted where that costs next to nothing. A number:
  // so many, whatever they cost.
  std::optional<std::uint32_t> shadows_per_stage;
  std::uint32_t shadows_per_peer_max = 4;
  double shadow_load = 0.035;      // share of its speed that a shadow costs its host
  double download_load = 0.5;      // ... while it downloads the state, over half of its link
  double shadow_loss_max = 0.01;   // share of the throughput that a shadow's download may take
  double fail_slow_share = 0.3;    // of the median speed of its stage mates: what slow means
  double fail_slow_seconds = 120;  // so long before it is replaced
  double link_bits_per_second = 200e6;
};

// What a run's coordinator plans with. `moves`: of those who serve; `shadows`: of each stage,
// empty: as many as cost next to nothing.
PlanOptions run_plan_options(bool moves, std::optional<std::uint32_t> shadows);

// A mover drops whatever else it follows.
enum class MoveKind : std::uint8_t {
  kInstant,   // it holds the state as a shadow
  kDownload,  // it fetches the state first
  kRetire,    // too slow: serves no more, may shadow
};

struct PlanMove {
  PeerId peer;
  MoveKind kind = MoveKind::kInstant;
  std::optional<StageId> from;
  StageId to;
  double seconds = 0;  // until it serves
  std::string reason;  // one clause, for the log and `swarmline plan`
};

struct ShadowChange {
  PeerId peer;
  StageId stage;
  bool add = true;
  std::string reason;
};

struct SwarmPlan {
  std::vector<PlanMove> moves;  // in the order they were decided
  std::vector<ShadowChange> shadows;
  // Microbatches per second of the slowest stage: with those who serve now, and when everybody on
  // the way has arrived.
  double throughput_before = 0;
  double throughput_after = 0;
};

SwarmPlan plan_swarm(const PlanSnapshot& snapshot, const PlanOptions& options);

// Throughput of the slowest stage with the best seating of everybody, moves free.
double best_throughput(const PlanSnapshot& snapshot);

}  // namespace swarmline
