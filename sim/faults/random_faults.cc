#include "sim/faults/random_faults.h"

#include <algorithm>
#include <cmath>

namespace swarmline {
namespace {

constexpr double kTimeSecondsMin = 0.001;
constexpr double kCoordinatorShare = 0.2;  // of the faults that can be its

}  // namespace

void RandomFaults::start() {
  if (!options_.kinds.empty() && !over()) next();
}

void RandomFaults::next() {
  const Duration gap = from_seconds(rng_.exponential(to_seconds(options_.gap)));
  cluster_.runtime().node(kWorldNode).call_after(gap, [this] {
    ++drawn_;
    if (cluster_.outcome()) drawn_ = options_.count;
    draw();
    if (!over()) next();
  });
}

// Log-uniform: what is over before anybody notices matters as much as what is found out.
Duration RandomFaults::time() {
  const double octaves = std::log2(to_seconds(options_.time_max) / kTimeSecondsMin);
  return from_seconds(kTimeSecondsMin * std::exp2(octaves * rng_.uniform()));
}

bool RandomFaults::is_sound(std::size_t peer) {
  return cluster_.serves(peer) &&
         !injector_.suffers(SimCluster::node_of_peer(peer), options_.grace);
}

bool RandomFaults::can_spare(SimNodeId node) {
  if (node == kCoordinatorNode) return true;
  if (!cluster_.runtime().is_alive(node)) return false;
  if (!trains_) return true;
  const StageId stage = cluster_.peer(node - 1).seat().stage;
  return is_served(stage, node) || has_heir(stage, node);
}

bool RandomFaults::is_served(StageId stage, SimNodeId besides) {
  for (std::size_t i = 0; i < cluster_.peers(); ++i)
    if (SimCluster::node_of_peer(i) != besides && is_sound(i) &&
        cluster_.peer(i).seat().stage == stage)
      return true;
  return false;
}

// Machines that come to break off serve, too, and others move away for them.
bool RandomFaults::enough_without(SimNodeId node) {
  std::size_t machines = 0;
  for (std::size_t i = 0; i < cluster_.peers(); ++i) {
    const SimNodeId other = SimCluster::node_of_peer(i);
    machines += other != node && cluster_.is_running(i) && !injector_.suffers(other) ? 1 : 0;
  }
  return machines >= options_.machines_min;
}

bool RandomFaults::has_heir(StageId stage, SimNodeId besides) {
  if (options_.shadowed_stages == 0 || !cluster_.has_coordinator()) return false;
  const std::vector<Seat> hosts = cluster_.coordinator().shadow_hosts(stage);
  for (std::size_t i = 0; i < cluster_.peers(); ++i) {
    const SimNodeId node = SimCluster::node_of_peer(i);
    const Seat seat = cluster_.peer(i).seat();
    if (node != besides && is_sound(i) && is_served(seat.stage, node) &&
        std::ranges::find(hosts, seat) != hosts.end())
      return true;
  }
  return false;
}

std::optional<SimNodeId> RandomFaults::victim() {
  const auto node = static_cast<SimNodeId>(1 + rng_.below(cluster_.peers()));
  if (injector_.suffers(node) || !can_spare(node)) return std::nullopt;
  return node;
}

void RandomFaults::kill_stage(StageId stage) {
  for (std::size_t i = 0; i < cluster_.peers(); ++i) {
    const SimNodeId node = SimCluster::node_of_peer(i);
    if (cluster_.is_running(i) && !injector_.suffers(node) &&
        cluster_.peer(i).seat().stage == stage)
      injector_.apply({.kind = FaultKind::kKill, .node = node});
  }
}

void RandomFaults::draw() {
  for (std::uint16_t s = 0; s < options_.shadowed_stages; ++s)
    if (!is_served(StageId{s}, kWorldNode)) return;
  Fault fault;
  fault.kind = options_.kinds[rng_.below(options_.kinds.size())];
  fault.time = time();
  fault.factor = 1 + (options_.factor_max - 1) * rng_.uniform();
  const bool at_coordinator = rng_.uniform() < kCoordinatorShare;
  const auto drawn = victim();
  const auto other = static_cast<SimNodeId>(1 + rng_.below(cluster_.peers()));
  // A start waits for as many as are wanted.
  if (!trains_ && (fault.kind == FaultKind::kKill || fault.kind == FaultKind::kDrain))
    fault.kind = FaultKind::kRestart;
  const bool joins = fault.kind == FaultKind::kJoin || fault.kind == FaultKind::kBrokenJoin;
  if (joins || fault.kind == FaultKind::kRestart) {
    if (made_ == kPeersMadeMax) return;
    ++made_;
  }
  if (fault.kind == FaultKind::kStage && (!trains_ || stages_lost_++ >= kStagesLostMax)) return;
  if (joins) {
    fault.node = other;  // a machine like that one, whatever became of it
  } else if (is_of_journal(fault.kind)) {
    if (injector_.suffers(kCoordinatorNode)) return;
    fault.node = kCoordinatorNode;
  } else if (at_coordinator && hits_coordinator(fault.kind) && !takes_two(fault.kind)) {
    if (injector_.suffers(kCoordinatorNode)) return;
    fault.node = kCoordinatorNode;
  } else {
    if (!drawn) return;
    fault.node = *drawn;
  }
  if (options_.shadowed_stages > 0 && fault.kind == FaultKind::kKill) {
    const StageId stage = cluster_.peer(fault.node - 1).seat().stage;
    if (rng_.below(2) == 0 && has_heir(stage, fault.node)) return kill_stage(stage);
  }
  if (takes_two(fault.kind)) {
    fault.other = at_coordinator ? kCoordinatorNode : other;
    if (fault.other == fault.node || injector_.suffers(fault.other) || !can_spare(fault.other))
      return;
  }
  const bool for_good = fault.kind == FaultKind::kKill || fault.kind == FaultKind::kDrain;
  if (for_good && !enough_without(fault.node)) return;
  injector_.apply(fault);
}

}  // namespace swarmline
