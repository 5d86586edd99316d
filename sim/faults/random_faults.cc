#include "sim/faults/random_faults.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/hours.h"

namespace swarmline {
namespace {

constexpr double kTimeSecondsMin = 0.001;
constexpr double kLongSecondsMin = 0.1;
constexpr double kStallSecondsMax = 20;    // of handshakes, each of which has ten
constexpr double kCoordinatorShare = 0.2;  // of the faults that can be its
constexpr int kDiskTimes = 2;              // a disk's faults last so much longer
constexpr double kDiskSlowness = 20;       // what a small model writes takes no time

}  // namespace

void RandomFaults::start() {
  if (!(options_.kinds.empty() && options_.rates.empty()) && !over()) next();
}

void RandomFaults::next() {
  double per_hour = 0;
  for (const FaultRate& rate : options_.rates) per_hour += rate.per_hour;
  const double mean =
      options_.rates.empty() ? to_seconds(options_.gap) : kSecondsPerHour / per_hour;
  const Duration gap = from_seconds(rng_.exponential(mean));
  cluster_.runtime().node(kWorldNode).call_after(gap, [this] {
    ++drawn_;
    ended_ = cluster_.outcome().has_value();
    if (ended_) drawn_ = options_.count;
    if (options_.rates.empty() || !over()) draw();
    if (!over()) next();
  });
}

// Log-uniform: what is over before anybody notices matters as much as what is found out.
Duration RandomFaults::time(Duration most) {
  const double octaves = std::log2(to_seconds(most) / kTimeSecondsMin);
  return from_seconds(kTimeSecondsMin * std::exp2(octaves * rng_.uniform()));
}

// From a moment to minutes, log-uniform; where it wakes, either way.
void RandomFaults::draw_long(Fault& fault, Duration most) {
  if (most == Duration{}) most = options_.long_time_max;
  if (fault.node == kCoordinatorNode) most = std::min(most, options_.long_time_max_coordinator);
  const double octaves = std::log2(to_seconds(most) / kLongSecondsMin);
  fault.time = from_seconds(kLongSecondsMin * std::exp2(octaves * rng_.uniform()));
  fault.wake = rng_.below(2) == 0 ? SimWake::kSocketsFirst : SimWake::kTimersFirst;
}

bool RandomFaults::is_sound(std::size_t peer) {
  return cluster_.serves(peer) &&
         !injector_.suffers(SimCluster::node_of_peer(peer), options_.grace);
}

bool RandomFaults::can_spare(SimNodeId node, FaultKind kind) {
  if (node == kCoordinatorNode) return true;
  if (!cluster_.runtime().is_alive(node)) return false;
  if (!trains_ || (options_.hits_last && keeps_memory(kind))) return true;
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
std::size_t RandomFaults::machines_without(SimNodeId node) {
  std::size_t machines = 0;
  for (std::size_t i = 0; i < cluster_.peers(); ++i) {
    const SimNodeId other = SimCluster::node_of_peer(i);
    machines += other != node && cluster_.is_running(i) && !injector_.suffers(other) ? 1 : 0;
  }
  return machines;
}

bool RandomFaults::has_heir(StageId stage, SimNodeId besides) {
  if (options_.shadowed_stages == 0 || !cluster_.has_coordinator()) return false;
  // Whoever takes over comes by a new link.
  if (cluster_.network().stalls_handshakes(kCoordinatorNode)) return false;
  const std::vector<Seat> hosts = cluster_.coordinator().shadow_hosts(stage);
  for (std::size_t i = 0; i < cluster_.peers(); ++i) {
    const SimNodeId node = SimCluster::node_of_peer(i);
    const Seat seat = cluster_.seat_of(i);
    if (node != besides && is_sound(i) && is_served(seat.stage, node) &&
        std::ranges::find(hosts, seat) != hosts.end())
      return true;
  }
  return false;
}

// Over a long run most that ever were are gone: a rate is one of those that are there.
SimNodeId RandomFaults::any_node() {
  if (options_.rates.empty()) return static_cast<SimNodeId>(1 + rng_.below(cluster_.peers()));
  std::vector<SimNodeId> there;
  for (std::size_t i = 0; i < cluster_.peers(); ++i)
    if (cluster_.is_running(i)) there.push_back(SimCluster::node_of_peer(i));
  return there.empty() ? 1 : there[rng_.below(there.size())];
}

Fault RandomFaults::draw_kind() {
  Fault fault;
  if (options_.rates.empty()) {
    fault.kind = options_.kinds[rng_.below(options_.kinds.size())];
    fault.time = time(options_.time_max);
    return fault;
  }
  double per_hour = 0;
  for (const FaultRate& rate : options_.rates) per_hour += rate.per_hour;
  double lot = per_hour * rng_.uniform();
  const FaultRate* drawn = &options_.rates.back();
  for (const FaultRate& rate : options_.rates) {
    drawn = &rate;
    if ((lot -= rate.per_hour) < 0) break;
  }
  fault.kind = drawn->kind;
  long_time_ = drawn->time_max;
  fault.time = time(drawn->time_max == Duration{} ? options_.time_max : drawn->time_max);
  return fault;
}

std::optional<SimNodeId> RandomFaults::victim(FaultKind kind) {
  const SimNodeId node = any_node();
  if (injector_.suffers(node) || !can_spare(node, kind)) return std::nullopt;
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
  Fault fault = draw_kind();
  fault.factor = 1 + (options_.factor_max - 1) * rng_.uniform();
  const bool at_coordinator = rng_.uniform() < kCoordinatorShare;
  const auto drawn = victim(fault.kind);
  const SimNodeId other = any_node();
  // A start waits for as many as are wanted.
  if (!trains_ && (fault.kind == FaultKind::kKill || fault.kind == FaultKind::kDrain))
    fault.kind = FaultKind::kRestart;
  const bool joins = fault.kind == FaultKind::kJoin || fault.kind == FaultKind::kBrokenJoin ||
                     sends_stranger(fault.kind);
  const bool comes_again = fault.kind == FaultKind::kRestart || fault.kind == FaultKind::kPowerLoss;
  if (joins || comes_again) {
    if (made_ == options_.peers_made_max) return;
    ++made_;
  }
  if (fault.kind == FaultKind::kStage && (!trains_ || stages_lost_++ >= kStagesLostMax)) return;
  if (joins && options_.machines_max > 0 && machines_without(kWorldNode) >= options_.machines_max)
    return;
  if (joins) {
    fault.node = other;  // a machine like that one, whatever became of it
  } else if (hits_disk(fault.kind)) {
    fault.node = kCoordinatorNode;
    fault.time *= kDiskTimes;
    fault.factor *= fault.kind == FaultKind::kDiskSlow ? kDiskSlowness : 1;
    return injector_.apply(fault);
  } else if (fault.kind == FaultKind::kRotateKey) {
    fault.node = kCoordinatorNode;  // or whoever leads after it
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
  if (is_on_request(fault.kind)) draw_long(fault, long_time_);
  if (options_.shadowed_stages > 0 && fault.kind == FaultKind::kKill) {
    const StageId stage = cluster_.peer(fault.node - 1).seat().stage;
    if (rng_.below(2) == 0 && has_heir(stage, fault.node)) return kill_stage(stage);
  }
  if (takes_two(fault.kind)) {
    fault.other = at_coordinator ? kCoordinatorNode : other;
    if (fault.other == fault.node || injector_.suffers(fault.other) ||
        !can_spare(fault.other, fault.kind))
      return;
  }
  if (fault.kind == FaultKind::kStalledHandshake) {
    fault.time = from_seconds(kStallSecondsMax * rng_.uniform());
    if (fault.other == kCoordinatorNode && rng_.below(2) == 0) std::swap(fault.node, fault.other);
  }
  const bool for_good = fault.kind == FaultKind::kKill || fault.kind == FaultKind::kDrain;
  if (for_good && machines_without(fault.node) < options_.machines_min) return;
  injector_.apply(fault);
}

}  // namespace swarmline
