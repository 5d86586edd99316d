#include "sim/faults/fault.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/marks.h"

namespace swarmline {
namespace {

constexpr Duration kFoundOut = kSimUserTimeout + std::chrono::seconds(5);

}  // namespace

std::string_view to_string(FaultKind kind) {
  return std::ranges::find(kFaultKinds, kind, &FaultName::kind)->name;
}

std::optional<FaultKind> fault_kind_from(std::string_view name) {
  const auto* found = std::ranges::find(kFaultKinds, name, &FaultName::name);
  if (found == kFaultKinds.end()) return std::nullopt;
  return found->kind;
}

bool is_on_request(FaultKind kind) {
  return std::ranges::find(kFaultKinds, kind, &FaultName::kind)->on_request;
}

bool keeps_memory(FaultKind kind) {
  return takes_two(kind) || kind == FaultKind::kFreeze || kind == FaultKind::kStall ||
         kind == FaultKind::kIsolate || kind == FaultKind::kMute || kind == FaultKind::kDeaf ||
         kind == FaultKind::kFull;
}

bool takes_two(FaultKind kind) {
  return kind == FaultKind::kPartition || kind == FaultKind::kOneWay || kind == FaultKind::kReset ||
         kind == FaultKind::kHalfOpen || kind == FaultKind::kHalfWay ||
         kind == FaultKind::kStalledHandshake;
}

bool hits_coordinator(FaultKind kind) {
  return takes_two(kind) || kind == FaultKind::kFreeze || kind == FaultKind::kRestart ||
         kind == FaultKind::kCorrupt || kind == FaultKind::kStall ||
         kind == FaultKind::kPowerLoss || kind == FaultKind::kIsolate || kind == FaultKind::kMute ||
         kind == FaultKind::kDeaf || kind == FaultKind::kFull || hits_disk(kind) ||
         is_of_journal(kind) || (is_of_keys(kind) && !sends_stranger(kind));
}

bool hits_disk(FaultKind kind) {
  return kind == FaultKind::kDiskFull || kind == FaultKind::kDiskError ||
         kind == FaultKind::kDiskSlow || kind == FaultKind::kDiskStuck;
}

bool is_of_journal(FaultKind kind) {
  return kind == FaultKind::kJournalError || kind == FaultKind::kJournalSlow ||
         kind == FaultKind::kJournalSilent || kind == FaultKind::kStoreCut;
}

bool sends_stranger(FaultKind kind) {
  return kind == FaultKind::kWrongKey || kind == FaultKind::kExpiredInvite ||
         kind == FaultKind::kSpentInvite || kind == FaultKind::kStolenSeat;
}

bool is_of_keys(FaultKind kind) {
  return sends_stranger(kind) || kind == FaultKind::kStalledHandshake ||
         kind == FaultKind::kRotateKey;
}

void FaultInjector::apply(const Fault& fault) {
  SWARMLINE_CHECK(fault.node <= cluster_.peers() && fault.other <= cluster_.peers());
  SimRuntime& runtime = cluster_.runtime();
  SimNetwork& network = cluster_.network();
  const SimNodeId node = fault.node, other = fault.other;
  SWARMLINE_CHECK(node != kCoordinatorNode || hits_coordinator(fault.kind));
  SWARMLINE_CHECK(node == kCoordinatorNode || !is_of_journal(fault.kind));
  note(fault);
  if (is_of_keys(fault.kind)) return apply_to_keys(fault);
  switch (fault.kind) {
    case FaultKind::kKill:
      begin(node);
      return network.kill(node);
    case FaultKind::kRestart:
      return restart(node, fault.time);
    case FaultKind::kStage:
      return restart_stage(cluster_.stage_of(node), fault.time);
    case FaultKind::kFreeze:
      begin(node);
      runtime.freeze(node);
      return heal_after(fault.time, {node}, [&runtime, node] { runtime.thaw(node); });
    case FaultKind::kSlow:
      begin(node);
      runtime.hurts(node);
      cluster_.device(node - 1).slow_down(fault.factor);
      return heal_after(fault.time, {node},
                        [this, node] { cluster_.device(node - 1).slow_down(1); });
    case FaultKind::kPartition:
    case FaultKind::kOneWay: {
      const bool both = fault.kind == FaultKind::kPartition;
      begin(node);
      begin(other);
      network.block(node, other);
      if (both) network.block(other, node);
      return heal_after(fault.time, {node, other}, [&network, node, other, both] {
        network.unblock(node, other);
        if (both) network.unblock(other, node);
      });
    }
    case FaultKind::kReset:
      begin(node);
      begin(other);
      network.cut(node, other);
      return heal_after(fault.time, {node, other}, [] {});
    case FaultKind::kCorrupt:
      begin(node);
      network.damage(node, 1 / fault.factor);
      return heal_after(fault.time, {node}, [&network, node] { network.damage(node, 0); });
    case FaultKind::kJoin:
      return join(cluster_.machine(node - 1), std::nullopt);
    case FaultKind::kBrokenJoin:
      return join(cluster_.machine(node - 1), fault.time);
    case FaultKind::kDiskFull:
    case FaultKind::kDiskError:
    case FaultKind::kDiskSlow:
    case FaultKind::kDiskStuck:
      return hurt_disk(fault);
    case FaultKind::kDrain:
      begin(node);
      runtime.hurts(node);  // it may leave at any moment
      return runtime.node(node).post(
          [this, node, time = fault.time] { cluster_.peer(node - 1).request_drain(time); });
    case FaultKind::kJournalError:
    case FaultKind::kJournalSlow:
    case FaultKind::kJournalSilent:
    case FaultKind::kStoreCut:
      return apply_to_journal(fault);
    default:
      return apply_lasting(fault);
  }
}

void FaultInjector::apply_lasting(const Fault& fault) {
  SimRuntime& runtime = cluster_.runtime();
  SimNetwork& network = cluster_.network();
  const SimNodeId node = fault.node, other = fault.other;
  if (fault.kind == FaultKind::kPowerLoss) return lose_power(node, fault.time);
  if (fault.kind == FaultKind::kZoneLoss) return lose_zone(node, fault.time);
  begin(node);
  switch (fault.kind) {
    case FaultKind::kStall:
      if (fault.wake == SimWake::kTimersFirst) SWARMLINE_MARK("fault.stall_timers_first");
      SWARMLINE_MARK("fault.stall");
      runtime.freeze(node, fault.wake);
      return heal_after(fault.time, {node}, [&runtime, node] { runtime.thaw(node); });
    case FaultKind::kIsolate:
    case FaultKind::kMute:
    case FaultKind::kDeaf: {
      if (fault.kind == FaultKind::kIsolate) SWARMLINE_MARK("fault.isolate");
      if (fault.kind == FaultKind::kMute) SWARMLINE_MARK("fault.mute");
      if (fault.kind == FaultKind::kDeaf) SWARMLINE_MARK("fault.deaf");
      network.silence(node, fault.kind != FaultKind::kDeaf, fault.kind != FaultKind::kMute);
      return heal_after(fault.time, {node}, [&network, node] { network.unsilence(node); });
    }
    case FaultKind::kHalfOpen:
    case FaultKind::kHalfWay: {
      const bool both = fault.kind == FaultKind::kHalfOpen;
      if (both) SWARMLINE_MARK("fault.half_open");
      if (!both) SWARMLINE_MARK("fault.half_way");
      begin(other);
      network.half_open(node, other, both);
      // Until those who send have found out; who only listens may never.
      return heal_after(kFoundOut, {node, other}, [] {});
    }
    case FaultKind::kFull:
      SWARMLINE_MARK("fault.full");
      network.fill(node, true);
      return heal_after(fault.time, {node}, [&network, node] { network.fill(node, false); });
    default:
      SWARMLINE_CHECK(false);
  }
}

void FaultInjector::apply_to_journal(const Fault& fault) {
  begin(fault.node);
  SimJournalDisk& disk = cluster_.journal().disk();
  switch (fault.kind) {
    case FaultKind::kJournalError:
      SWARMLINE_MARK("fault.journal_error");
      disk.fails = "database or disk is full";
      return heal_after(fault.time, {fault.node}, [&disk] { disk.fails.reset(); });
    case FaultKind::kJournalSlow:
      SWARMLINE_MARK("fault.journal_slow");
      disk.time = from_seconds(to_seconds(kSlowWrite) * fault.factor);
      return heal_after(fault.time, {fault.node},
                        [&disk, usual = cluster_.journal_time()] { disk.time = usual; });
    case FaultKind::kJournalSilent:
      SWARMLINE_MARK("fault.journal_silent");
      disk.silent = true;
      return heal_after(fault.time, {fault.node}, [&disk] { disk.silent = false; });
    default:
      SWARMLINE_MARK("fault.store_cut");
      cluster_.lead().cut_off(fault.node, true);
      return heal_after(fault.time, {fault.node},
                        [this, node = fault.node] { cluster_.lead().cut_off(node, false); });
  }
}

bool FaultInjector::suffers(SimNodeId node, Duration grace) const {
  const auto found = suffering_.find(node);
  if (found == suffering_.end()) return false;
  return found->second.faults > 0 || cluster_.elapsed() < found->second.healed + grace;
}

void FaultInjector::note(const Fault& fault) {
  ++counts_[fault.kind];
  if (history_.size() == kFaultHistoryMax) return;
  const auto who = [this](SimNodeId node) {
    if (node == kCoordinatorNode) return std::string("the coordinator");
    const Seat seat = cluster_.seat_of(node - 1);
    if (seat.peer.value == 0) return fmt::format("node {} (no seat)", node);
    return fmt::format("node {} (stage {})", node, seat.stage.value);
  };
  std::string text = fmt::format("{:.6f} s: {} {}", to_seconds(cluster_.elapsed()),
                                 to_string(fault.kind), who(fault.node));
  if (takes_two(fault.kind)) text += fmt::format(" and {}", who(fault.other));
  if (fault.kind == FaultKind::kSlow || fault.kind == FaultKind::kJournalSlow)
    text += fmt::format(" by {:.2g}", fault.factor);
  if (fault.kind == FaultKind::kCorrupt)
    text += fmt::format(", one message in {:.2g}", fault.factor);
  if (fault.kind != FaultKind::kKill && fault.kind != FaultKind::kJoin &&
      fault.kind != FaultKind::kReset && fault.kind != FaultKind::kHalfOpen &&
      fault.kind != FaultKind::kHalfWay)
    text += fmt::format(", {:.3g} s", to_seconds(fault.time));
  history_.push_back(std::move(text));
}

// Whoever writes to it is not hurt itself: other faults may hit it meanwhile.
void FaultInjector::hurt_disk(const Fault& fault) {
  SimDisk& disk = cluster_.disk();
  const Instant until = cluster_.runtime().now() + fault.time;
  if (fault.kind == FaultKind::kDiskFull) disk.fill(until);
  if (fault.kind == FaultKind::kDiskError) disk.fail_often(until, fault.factor);
  if (fault.kind == FaultKind::kDiskSlow) disk.slow_down(until, fault.factor);
  if (fault.kind == FaultKind::kDiskStuck) disk.get_stuck(until);
  heal_after(fault.time, {}, [] {});
}

void FaultInjector::restart(SimNodeId node, Duration time) {
  begin(node);
  if (node == kCoordinatorNode) {
    cluster_.kill_coordinator();
    return heal_after(time, {node}, [this] { cluster_.restart_coordinator(); });
  }
  cluster_.network().kill(node);
  heal_after(time, {}, [this, node] { join(cluster_.machine(node - 1), std::nullopt); });
}

void FaultInjector::lose_power(SimNodeId node, Duration time) {
  SWARMLINE_MARK("fault.power_loss");
  begin(node);
  if (node == kCoordinatorNode) {
    cluster_.kill_coordinator(SimCluster::Death::kSilent);
    return heal_after(time, {node}, [this] {
      cluster_.network().power_on(kCoordinatorNode);
      cluster_.restart_coordinator();
    });
  }
  cluster_.network().power_off(node);
  heal_after(time, {}, [this, node] {
    cluster_.network().power_on(node);
    join(cluster_.machine(node - 1), std::nullopt);
  });
}

void FaultInjector::lose_zone(SimNodeId node, Duration time) {
  const std::string zone = cluster_.machine(node - 1).zone;
  for (std::size_t peer = 0, peers = cluster_.peers(); peer < peers; ++peer) {
    const SimNodeId other = SimCluster::node_of_peer(peer);
    const bool is_in_it = other == node || (!zone.empty() && cluster_.machine(peer).zone == zone);
    if (is_in_it && cluster_.is_running(peer)) lose_power(other, time);
  }
}

void FaultInjector::restart_stage(StageId stage, Duration time) {
  for (std::size_t peer = 0, peers = cluster_.peers(); peer < peers; ++peer) {
    const SimNodeId node = SimCluster::node_of_peer(peer);
    if (cluster_.is_running(peer) && cluster_.peer(peer).seat().peer.value != 0 &&
        cluster_.stage_of(node) == stage)
      restart(node, time);
  }
}

void FaultInjector::begin(SimNodeId node) {
  ++suffering_[node].faults;
}

void FaultInjector::heal_after(Duration time, std::vector<SimNodeId> nodes,
                               std::function<void()> heal) {
  ++open_;
  cluster_.runtime()
      .node(kWorldNode)
      .call_after(time, [this, nodes = std::move(nodes), heal = std::move(heal)] {
        heal();
        for (const SimNodeId node : nodes) {
          Suffering& suffering = suffering_.at(node);
          --suffering.faults;
          suffering.healed = cluster_.elapsed();
        }
        --open_;
      });
}

void FaultInjector::join(const SimPeer& machine, std::optional<Duration> dies_after) {
  SimPeer newcomer = machine;
  newcomer.ticket = SimTicket::kGood;
  const SimNodeId node = SimCluster::node_of_peer(cluster_.add_peer(newcomer));
  if (!dies_after) return;
  begin(node);
  heal_after(*dies_after, {}, [this, node] { cluster_.network().kill(node); });
}

}  // namespace swarmline
