// A whole swarm in one thread: the real coordinator and stage peers over the simulated doors, from
// a seed.
//   What:      one coordinator (node 0) and peers (nodes 1, 2, ...), each with its own device; the
//              tiny model is really computed, in virtual time.
//   Ownership: owns all nodes. Thread: one.
//   Bounds:    run() ends at its virtual limit.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/store/journal.h"
#include "node/leadership.h"
#include "pipeline/coordinator/coordinator.h"
#include "pipeline/stage/stage_peer.h"
#include "sim/cluster/sim_checkpoints.h"
#include "sim/cluster/sim_keys.h"
#include "sim/doors/sim_control_store.h"
#include "sim/doors/sim_device.h"
#include "sim/doors/sim_fabric.h"
#include "sim/doors/sim_journal.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {

inline constexpr SimNodeId kCoordinatorNode = 0;
inline constexpr SimNodeId kStandbyNode = 1'000'000;
// Beyond what peers are given: theirs stay free while they are down.
inline constexpr const char* kCoordinatorAddress = "sim:60001";
inline constexpr const char* kStandbyAddress = "sim:60000";

struct SimPeer {
  Duration forward = std::chrono::milliseconds(4);
  Duration backward = std::chrono::milliseconds(8);
  double jitter = 0;
  Duration control{};  // mean time of jobs that are neither: builds, hashes, copies
  Duration way_in{};   // SimDeviceOptions; of a model whose device goes on by itself
  Duration way_out{};
  double join_patience_seconds = PeerConfig().join_patience_seconds;
  std::optional<SimCard> card;
  std::uint64_t shadow_memory_bytes = 0;    // 0: no bound
  std::string zone;                         // empty: it says none
  double bandwidth = 0;                     // that it says it has, bits per second; 0: none
  std::string host;                         // which machine it says it is on; empty: none
  std::optional<SimFabricPlace> gpu;        // that it computes on; of a model on a device
  bool sees_checkpoints = false;            // their folder: it writes its parts itself
  std::string lacks_data, differs_in_data;  // HeldData, where the run has data
  std::size_t kind = 0;                     // for the caller, and of machines made like it
  SimTicket ticket = SimTicket::kGood;      // of a run with keys
};

struct SimClusterOptions {
  RunConfig config;
  std::uint32_t vocab = 31;
  std::uint64_t seed = 1;
  std::uint64_t eval_sequences = 0;
  Duration journal_late{};                   // of SimJournal
  Duration journal_time{};                   // that a write takes, without faults
  Duration lease{};                          // of the lead; 0: it needs no renewal
  Duration checkpoint_read{};                // how long it takes to read one and to check its bytes
  std::shared_ptr<const DataManifest> data;  // CoordinatorOptions; null: nobody is asked
  std::string admin_secret;    // CoordinatorOptions; none: nobody steers it, seats have no proofs
  bool keys = false;           // links are between keys, as real ones beyond loopback are
  bool keep_log_lines = true;  // log_lines(); of many peers they are long
  SimLink link;                // between any two nodes
  SimFabricOptions fabric;     // between GPUs of one host
  // Between machines that say these zones; null: `link`. None: there are no zones.
  std::function<const SimLink*(const std::string& from, const std::string& to)> link_between;
  std::string coordinator_zone;
  std::uint64_t arrival_bytes_min = Limits::arrival_bytes_min;  // SimNetworkOptions
  decltype(SimNetworkOptions::charged_bytes) charged_bytes;
  decltype(SimNetworkOptions::stands_for_many) stands_for_many;
  // Instead of SimPeer's times: a job's on that machine at that stage.
  std::function<std::optional<Duration>(const SimPeer& machine, StageId stage, JobKind kind)>
      service;
  // In joining order, as many as the config wants: more are left out, missing ones are SimPeer{}.
  std::vector<SimPeer> peers;
  // The model of each peer; tests wrap it to make it fail or stall.
  decltype(StagePeerOptions::make_model) make_model;
  decltype(StagePeerOptions::make_wiring) make_wiring;
  // The last word on what a peer is made with, by its place among the peers; empty: none.
  std::function<void(std::size_t peer, Runtime& runtime, StagePeerOptions& options)> outfit;
};

class SimCluster {
 public:
  explicit SimCluster(SimClusterOptions options);
  ~SimCluster();

  // The control process dies, and its disk loses what was not synced. kSilent: with its machine,
  // and nobody hears of it.
  enum class Death : std::uint8_t { kReset, kSilent };
  void kill_coordinator(Death how = Death::kReset);
  std::uint64_t coordinators_killed() const { return coordinators_killed_; }
  // Another one is begun on that journal, at the same address.
  void restart_coordinator();
  // A standby takes the lead at kStandbyAddress; the one before, frozen or cut off, can't write to
  // the journal any more, and does not know it yet.
  void take_over();

  // Another peer joins now. Returns its place among the peers.
  std::size_t add_peer(SimPeer machine);
  // Lets go of what processes that are gone have left behind: of a long run most are. Nothing but
  // their seats can be asked of such peers any more. Not where a standby leads.
  void bury();

  // Runs until the coordinator has ended; empty when `limit` of virtual time passed first.
  std::optional<RunOutcome> run(Duration limit);
  bool run_until(const std::function<bool()>& done, Duration limit) {
    return runtime_.run_until(done, limit);
  }

  Duration elapsed() const { return runtime_.now() - began_; }
  SimRuntime& runtime() { return runtime_; }
  SimNetwork& network() { return network_; }
  SimFabrics& fabrics() { return fabrics_; }
  SimKeys* keys() { return keys_.get(); }  // null: links are plain
  Coordinator& coordinator() { return *coordinator_; }
  bool has_coordinator() const { return coordinator_ != nullptr; }  // else nobody leads now
  StagePeer& peer(std::size_t i) {
    SWARMLINE_CHECK(nodes_[i]->peer != nullptr);
    return *nodes_[i]->peer;
  }
  bool is_buried(std::size_t i) const { return nodes_[i]->peer == nullptr; }
  Seat seat_of(std::size_t i) const;  // its last one
  SimDevice& device(std::size_t i) { return nodes_[i]->device; }
  const SimPeer& machine(std::size_t i) const { return nodes_[i]->machine; }
  bool is_running(std::size_t i) const;  // its process has not ended, nor was killed
  // Its process lives, and both it and the coordinator think that it serves its stage.
  bool serves(std::size_t i) const;
  std::size_t peers() const { return nodes_.size(); }
  StageId stage_of(SimNodeId node) const;  // of its seat; 0 where it has none
  const std::string& zone_of(SimNodeId node) const;
  static SimNodeId node_of_peer(std::size_t i) { return static_cast<SimNodeId>(i + 1); }
  const std::optional<RunOutcome>& outcome() const { return outcome_; }
  std::size_t ended() const { return ended_; }  // peers that have an outcome
  const std::optional<PeerOutcome>& outcome_of(std::size_t i) const { return nodes_[i]->outcome; }

  const std::vector<std::string>& log_lines() const { return log_lines_; }
  SimJournal& journal() { return journal_; }
  Duration journal_time() const { return options_.journal_time; }
  SimLead& lead() { return lead_; }
  const RunConfig& config() const { return options_.config; }
  // For oracles.
  void watch_journal(SimJournal::Watcher watcher) { journal_.watch(std::move(watcher)); }
  std::uint64_t journal_writes() const { return journal_.writes(); }
  const SimCheckpoints& checkpoint() const { return checkpoints_; }
  void damage_newest_checkpoint() { checkpoints_.damage_newest(); }
  SimDisk& disk() { return checkpoints_.disk(); }  // that checkpoints are on
  std::uint64_t trace_hash() const { return runtime_.trace_hash(); }

  // Tensor name -> its bytes at the peer (the newest committed version). Read when the run has
  // ended.
  std::map<std::string, std::vector<std::byte>> parameters_of(std::size_t i) const;
  // Of all stages, from the peers that live and serve; CHECKs that replicas are bit-equal.
  std::map<std::string, std::vector<std::byte>> parameters() const;

 private:
  struct Node {
    Node(SimRuntime& runtime, SimNodeId id, SimPeer machine, SimDeviceOptions device_options);
    SimPeer machine;
    SimDevice device;
    std::unique_ptr<SimPartFolder> part_folder;
    std::unique_ptr<StagePeer> peer;  // null: buried
    Seat last_seat;                   // of one that is buried
    std::optional<PeerOutcome> outcome;
  };

  std::function<const SimLink*(SimRoute)> zone_links() const;
  void make_peer(const SimPeer& machine);
  void make_coordinator(SimNodeId node, const std::string& address);
  Result<Address> lead_from(SimNodeId node, const std::string& address, AsyncJournal& journal);
  Leadership::OnEnd on_end(SimNodeId node, const std::string& address);
  void step_aside(SimNodeId node, const std::string& address, std::uint64_t reign);

  SimClusterOptions options_;
  ModelSpec model_;
  std::vector<std::string> zones_;  // by peer; connections that close ask for them to the end
  SimRuntime runtime_;
  Instant began_ = runtime_.now();
  SimNetwork network_;
  SimFabrics fabrics_;
  std::unique_ptr<SimKeys> keys_;
  struct Leading;
  SimJournal journal_;
  SimLead lead_;
  std::uint64_t reign_ = 0;
  std::vector<std::unique_ptr<Leading>> leading_;  // of all coordinators that ever led
  SimCheckpoints checkpoints_{runtime_.rng("checkpoints")};
  std::vector<std::unique_ptr<SimCheckpointSink>> sinks_;  // of all coordinators that ever led
  std::vector<std::unique_ptr<SimCheckpointSource>> sources_;
  std::vector<std::string> log_lines_;
  std::optional<RunOutcome> outcome_;
  std::unique_ptr<Coordinator> coordinator_;
  std::uint64_t coordinators_killed_ = 0;
  std::size_t ended_ = 0;
  // Dead, or not leading any more, with the reign of each.
  std::vector<std::pair<std::uint64_t, std::unique_ptr<Coordinator>>> former_;
  Address address_;  // of the coordinator
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace swarmline
