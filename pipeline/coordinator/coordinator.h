// The control process of a run: membership, leases, ledger, step commit, journal, status. Never on
// the data path.
//   What:      seats peers as they join; when every stage has its peers, opens phase after phase,
//              hands out leases, records contributions, closes, lets the groups reduce, commits;
//              evaluates; checkpoints; ends the run.
//   Ownership: runtime, network, journal and sink outlive the coordinator.
//   Thread:    control thread only.
//   Eras:      when nobody holds a stage's state any more, the run goes back to its newest complete
//              checkpoint (or the seed's parameters) by itself, under the next era. A journal that
//              holds a run is gone on with in the same way.
//   Errors:    a poison microbatch, peers that fail one after the other, or a stage that nobody
//              serves for [net] peers_wait_seconds ends the run with RunOutcome{1, sentence}.
//              RunOutcome{3, sentence}: another coordinator leads the run, and it goes on there.
//   Bounds:    two open training phases (delay 1), one evaluation; peers <= Limits::peers_max.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"
#include "engine/net/network.h"
#include "engine/runtime/runtime.h"
#include "engine/store/journal.h"

namespace swarmline {

struct RunOutcome {
  int exit_code = 0;
  std::string sentence;
};

// Where checkpoints go, piece by piece; the run folder in life, memory in the simulator.
class CheckpointSink {
 public:
  struct Description {
    std::string name;  // "step-100"
    std::uint64_t version = 0;
    std::vector<StageSpec> stages;
    std::string config_toml;
    bool optimizer_state = false;  // the stage files hold it (saved_state.h)
    std::uint64_t updates = 0;     // commits so far that were not skipped
  };
  virtual ~CheckpointSink() = default;
  virtual Result<void> begin(const Description& description) = 0;
  virtual Result<void> write_piece(StageId stage, std::uint64_t offset, BytesView bytes) = 0;
  virtual Result<void> finish_stage(StageId stage, std::uint64_t size,
                                    const std::string& sha256) = 0;
  virtual Result<std::string> commit() = 0;  // the path for people
  virtual void abandon() = 0;
};

// What a run goes back to: complete checkpoints with the optimizer's state.
class CheckpointSource {
 public:
  struct Saved {
    std::uint64_t version = 0;
    std::uint64_t updates = 0;
    std::string path;  // for people
  };
  using Opened = std::function<void(Result<std::optional<Saved>>)>;
  virtual ~CheckpointSource() = default;
  // The newest one whose bytes are what was written; the others are passed over, with a warning.
  // Empty: there is none. Every byte is read, which may take minutes, off the control thread;
  // `done` comes there, later. Its tensors can be read until the next call.
  virtual void open_newest(Opened done) = 0;
  virtual Result<BytesView> tensor(const std::string& name) const = 0;
};

struct CoordinatorOptions {
  RunConfig config;
  std::string config_toml;  // resolved, sent to peers
  std::string run_id;       // a journal that holds a run keeps its own
  ModelSpec model;
  std::uint64_t eval_sequences =
      0;  // of the held-out split, per evaluation; a multiple of the microbatch
  double unigram_entropy = 0;                        // nats per token, for the summary
  double bigram_entropy = 0;                         // nats per token of the held-out split
  std::function<void(const std::string&)> log_line;  // one JSON object per step, for log.jsonl
  CheckpointSource* checkpoints = nullptr;  // outlives the coordinator; null: there are none
};

class Coordinator {
 public:
  Coordinator(Runtime& runtime, Network& network, Journal& journal, CheckpointSink& sink,
              CoordinatorOptions options, std::function<void(RunOutcome)> on_finished);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // The run of that journal was over when its coordinator ended, or left by its user.
  static Result<bool> has_ended(Journal& journal);

  // Listens on [net] listen and returns the bound address. On a journal that holds a run it goes on
  // with it: with the peers that still serve it, else from the newest checkpoint.
  Result<Address> start();
  // False while it looks for the checkpoint to go back to: whoever joins then waits for its answer.
  bool takes_peers() const;
  // First call: finish the open step, checkpoint, end with exit code 0. `now`: end at once with
  // 130.
  void request_stop(bool now);
  // What `status --json` shows; see docs/formats/status.md.
  std::string status_json() const;
  // For tests and the simulator: CHECKs the ledger by recounting it; whether the seat serves now.
  void check_invariants() const;
  bool serves(const Seat& seat) const;
  // Seats of those whose shadows of the stage are ready to take it over.
  std::vector<Seat> shadow_hosts(StageId stage) const;

 private:
  class Impl;  // the reigns, one after the other
  std::unique_ptr<Impl> impl_;
};

}  // namespace swarmline
