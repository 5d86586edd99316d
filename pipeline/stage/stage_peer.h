// A peer: serves one stage at a time on one device. Joins a coordinator, builds its stage, computes
// what arrives, wires what leaves, averages gradients with its stage mates, steps when told.
//   Ownership: runtime, network and device outlive the peer; the peer owns its stage model and
//              optimizer.
//   Thread:    control thread; the model is touched by device jobs only.
//   Fenced:    a peer that lost its seat drops all it holds and asks for a new one.
//   Adrift:    a seated peer whose coordinator is gone keeps what it holds, computes what it can,
//              and offers all of it to the next coordinator that answers. Only when that one has no
//              use for it does the peer start over.
//   Patience:  both for [net] coordinator_patience_seconds; a newcomer, who does not know them yet,
//              for its own join_patience_seconds.
//   Shadows:   beside its stage it may follow others in host memory; sent to one of them, it begins
//              with what it has of it.
//   Errors:    ends once with PeerOutcome: 0 the run is done or drained, 1 failed, 2 the user's
//              mistake, 3 refused (e.g. because its machine lacks the device or a data file).
//   Bounds:    activations admitted by bytes ([net] admit_bytes); a full peer refuses; gradients
//              and control never are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/data/data_manifest.h"
#include "engine/device/device.h"
#include "engine/fabric/fabric.h"
#include "engine/fabric/gpu_identity.h"
#include "engine/model/stage_model.h"
#include "engine/net/bulk/bulk_door.h"
#include "engine/net/network.h"
#include "engine/runtime/runtime.h"
#include "pipeline/protocol/insight.h"
#include "pipeline/source/microbatch_source.h"
#include "pipeline/stage/data_folder.h"
#include "pipeline/stage/part_folder.h"
#include "pipeline/wiring/wiring.h"

namespace swarmline {

struct StagePeerOptions {
  Address coordinator;
  std::vector<Address> standby = {};  // tried in turn when no coordinator answers there
  PeerConfig machine;
  std::string name;
  std::string host = {};  // which machine it is on: the same for all there; empty: not said
  // What this machine has of the run's data, on the device's thread, before it gets a seat. Empty:
  // all of it.
  std::function<HeldData(const DataManifest&)> compare_data = {};
  // Made only by a peer of stage 0, from the config that the coordinator sent.
  std::function<Result<std::unique_ptr<MicrobatchSource>>(const RunConfig&)> make_source;
  std::function<Result<std::unique_ptr<StageModel>>(const ModelSpec&, const StageSpec&,
                                                    const StageModelOptions&)>
      make_model;
  // Bytes that a device has left, on the device's thread; 0: not known. Empty: of none.
  std::function<std::uint64_t(const std::string& device)> free_device_memory = {};
  // Another wiring rule than the config's, tried in the whole protocol; empty: the config's.
  std::function<std::unique_ptr<Wiring>(const RunConfig&, const Seat& self)> make_wiring;
  // Has what shows its seat to other peers; empty: its links are not authenticated.
  std::function<void(const std::string& certificate)> on_certificate = {};
  PartFolder* part_folder = nullptr;  // outlives the peer; null: checkpoints go to the coordinator
  DataFolder* data_folder = nullptr;  // the same; null: it neither gives nor fetches data
  BulkDoor* bulk = nullptr;           // the same; null: payloads travel with their frames
  Fabric* fabric = nullptr;           // the same; null: its device reaches no other's memory
  GpuIdentity gpu = {};               // that the device is
};

struct PeerOutcome {
  int exit_code = 0;
  std::string sentence;
};

class StagePeer {
 public:
  StagePeer(Runtime& runtime, Network& network, Device& device, StagePeerOptions options,
            std::function<void(PeerOutcome)> on_finished);
  ~StagePeer();
  StagePeer(const StagePeer&) = delete;
  StagePeer& operator=(const StagePeer&) = delete;

  void start();
  // Leaves at once; on_finished follows.
  void request_stop();
  // A notice came (a spot machine's): takes nothing new, hands in what it holds, leaves; at the
  // latest after `notice`.
  void request_drain(Duration notice);
  // Its machine may be taken soon: the run is told, now and at each seat that it takes.
  void tell_risk();
  // For tests, while its device is idle: the newest committed parameters of this peer's stage
  // (empty before it is seated).
  BytesView committed_parameters() const;
  const ParameterLayout* layout() const;
  Seat seat() const;
  bool serves() const;  // it has its seat and its state
  void check_invariants() const;
  // For the simulator's oracles: whole states of stages; microbatches that are tried, or of which
  // the ledger has yet to hear.
  std::vector<HeldState> held_states() const;
  std::set<MicrobatchId> tries() const;
  std::vector<NamedSize> sizes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace swarmline
