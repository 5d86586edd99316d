// What may happen to the machines and links of a simulated swarm, and doing it.
//   Thread: that of the SimCluster. Same calls at the same virtual instants, same run.
//   Bounds: kFaultHistoryMax remembered sentences.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cluster/sim_cluster.h"

namespace swarmline {

// Faults and their ends are events of nobody's process.
inline constexpr SimNodeId kWorldNode = std::numeric_limits<SimNodeId>::max();

enum class FaultKind : std::uint8_t {
  kKill,        // the process is gone, its connections are reset
  kRestart,     // the same, and after `time` its machine joins again as a new process; a
                // coordinator goes on with its journal
  kFreeze,      // stopped for `time`, then it goes on
  kSlow,        // its device takes `factor` times as long, for `time`
  kPartition,   // nothing passes between `node` and `other` for `time`
  kOneWay,      // nothing passes from `node` to `other` for `time`
  kReset,       // every connection between `node` and `other` breaks once
  kJoin,        // a machine like `node`'s joins
  kBrokenJoin,  // the same, and it is gone after `time`
  kStage,       // every peer of `node`'s stage restarts at once
  kDrain,       // a notice of `time`: it hands in what it has and leaves
  kCorrupt,     // of what it sends and gets one message in `factor` is damaged, for `time`
  kStall,       // as freeze, and it wakes as `wake` says
  kPowerLoss,   // as restart, and nobody hears of it before its machine is back
  kIsolate,     // nothing passes between it and anybody for `time`
  kMute,        // nothing that it sends arrives for `time`
  kDeaf,        // nothing that is sent to it arrives for `time`
  kHalfOpen,    // on the connections of `node` and `other` everything vanishes for ever
  kHalfWay,     // ... what `node` sends
  kFull,        // it has no descriptors left, for `time`
  kZoneLoss,    // as power-loss, of every machine in `node`'s zone at once
  // Of the disk that checkpoints are on, each for `time`:
  kDiskFull,   // nothing can be written
  kDiskError,  // one operation in `factor` fails
  kDiskSlow,   // everything takes `factor` times as long
  kDiskStuck,  // what is synced comes back after it
  // Of the coordinator alone, for `time`:
  kJournalError,   // its journal can't be written
  kJournalSlow,    // each write takes `factor` times kSlowWrite
  kJournalSilent,  // no write is answered
  kStoreCut,       // it reaches neither its journal nor its lead: a lease runs out
  // Of a run with keys alone. Newcomers that are not to come in; a machine like `node`'s each:
  kWrongKey,       // its string is another run's
  kExpiredInvite,  // its invite's time is over
  kSpentInvite,    // ... was revoked, or was for one that has come, by turns
  kStolenSeat,     // it shows another peer's seat, to the coordinator and to all peers
  // Others:
  kStalledHandshake,  // `node` says nothing in handshakes, for `time`; its links to `other` break
  kRotateKey,         // the run gets another key
};
struct FaultName {
  FaultKind kind;
  std::string_view name;
  // Only where it is asked for by name: seconds and minutes rather than moments, or unsaid.
  bool on_request = false;
};
inline constexpr std::array kFaultKinds = {
    FaultName{FaultKind::kKill, "kill"},
    FaultName{FaultKind::kRestart, "restart"},
    FaultName{FaultKind::kFreeze, "freeze"},
    FaultName{FaultKind::kSlow, "slow"},
    FaultName{FaultKind::kPartition, "partition"},
    FaultName{FaultKind::kOneWay, "one-way"},
    FaultName{FaultKind::kReset, "reset"},
    FaultName{FaultKind::kJoin, "join"},
    FaultName{FaultKind::kBrokenJoin, "broken-join"},
    FaultName{FaultKind::kDrain, "drain"},
    FaultName{FaultKind::kStage, "stage"},
    FaultName{FaultKind::kCorrupt, "corrupt"},
    FaultName{FaultKind::kStall, "stall", true},
    FaultName{FaultKind::kPowerLoss, "power-loss", true},
    FaultName{FaultKind::kIsolate, "isolate", true},
    FaultName{FaultKind::kMute, "mute", true},
    FaultName{FaultKind::kDeaf, "deaf", true},
    FaultName{FaultKind::kHalfOpen, "half-open", true},
    FaultName{FaultKind::kHalfWay, "half-way", true},
    FaultName{FaultKind::kFull, "full", true},
    FaultName{FaultKind::kZoneLoss, "zone-loss", true},
    FaultName{FaultKind::kDiskFull, "disk-full"},
    FaultName{FaultKind::kDiskError, "disk-error"},
    FaultName{FaultKind::kDiskSlow, "disk-slow"},
    FaultName{FaultKind::kDiskStuck, "disk-stuck"},
    FaultName{FaultKind::kJournalError, "journal-error"},
    FaultName{FaultKind::kJournalSlow, "journal-slow"},
    FaultName{FaultKind::kJournalSilent, "journal-silent"},
    FaultName{FaultKind::kStoreCut, "store-cut"},
    FaultName{FaultKind::kWrongKey, "wrong-key"},
    FaultName{FaultKind::kExpiredInvite, "expired-invite"},
    FaultName{FaultKind::kSpentInvite, "spent-invite"},
    FaultName{FaultKind::kStolenSeat, "stolen-seat"},
    FaultName{FaultKind::kStalledHandshake, "stalled-handshake"},
    FaultName{FaultKind::kRotateKey, "rotate-key"}};
std::string_view to_string(FaultKind kind);
std::optional<FaultKind> fault_kind_from(std::string_view name);
bool is_on_request(FaultKind kind);
bool keeps_memory(FaultKind kind);      // whom it hits holds what it held, and goes on
bool takes_two(FaultKind kind);         // it concerns `node` and `other`
bool hits_coordinator(FaultKind kind);  // it may be `node`, or `other`
bool hits_disk(FaultKind kind);      // it concerns the checkpoints' disk; `node` is the coordinator
bool is_of_journal(FaultKind kind);  // it hits the coordinator alone
bool is_of_keys(FaultKind kind);     // only of a run with keys
bool sends_stranger(FaultKind kind);  // of these, a newcomer that is not to come in
inline constexpr Duration kSlowWrite = std::chrono::milliseconds(20);

struct Fault {
  FaultKind kind = FaultKind::kKill;
  SimNodeId node = 1;                  // kCoordinatorNode too, where hits_coordinator()
  SimNodeId other = kCoordinatorNode;  // of links
  Duration time = std::chrono::seconds(1);
  double factor = 4;  // kSlow, kCorrupt, kJournalSlow, kDiskError, kDiskSlow; >= 1
  SimWake wake = SimWake::kSocketsFirst;  // kStall
};

class FaultInjector {
 public:
  static constexpr std::size_t kFaultHistoryMax = 10'000;

  explicit FaultInjector(SimCluster& cluster) : cluster_(cluster) {}

  // Now. `fault.node` must be a peer that was made (CHECKed), or the coordinator.
  void apply(const Fault& fault);
  // The node suffers, did so less than `grace` ago, or never recovers.
  bool suffers(SimNodeId node, Duration grace = {}) const;
  // Nothing that was applied is still to heal.
  bool healed() const { return open_ == 0; }
  const std::map<FaultKind, std::uint64_t>& counts() const { return counts_; }
  // "1.250 s: freeze node 3 (stage 1) for 0.4 s", for people.
  const std::vector<std::string>& history() const { return history_; }

 private:
  void note(const Fault& fault);
  void apply_lasting(const Fault& fault);
  void lose_power(SimNodeId node, Duration time);
  void lose_zone(SimNodeId node, Duration time);
  void hurt_disk(const Fault& fault);
  void apply_to_journal(const Fault& fault);
  void apply_to_keys(const Fault& fault);
  void send_stranger(const Fault& fault);
  void restart(SimNodeId node, Duration time);
  void restart_stage(StageId stage, Duration time);
  void begin(SimNodeId node);  // of a kind that never heals: nothing ends it
  void heal_after(Duration time, std::vector<SimNodeId> nodes, std::function<void()> heal);
  void join(const SimPeer& machine, std::optional<Duration> dies_after);

  SimCluster& cluster_;
  struct Suffering {
    std::uint32_t faults = 0;  // at a time
    Duration healed{};         // when the last one was; since the beginning
  };
  std::map<SimNodeId, Suffering> suffering_;
  std::uint64_t open_ = 0;
  std::map<FaultKind, std::uint64_t> counts_;
  std::vector<std::string> history_;
};

}  // namespace swarmline
