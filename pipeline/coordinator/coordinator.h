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
//   Journal:   written by another thread; what is decided is said once it is durable. While it
//              can't be written, commits and seats wait, heartbeats and what was leased go on.
//   Errors:    a poison microbatch, peers that fail one after the other, or a stage that nobody
//              serves for [net] peers_wait_seconds ends the run with RunOutcome{1, sentence}.
//              RunOutcome{3, sentence}: another coordinator leads the run, and it goes on there.
//   Bounds:    two open training phases (delay 1), one evaluation; peers <= Limits::peers_max.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/net/network.h"
#include "engine/runtime/runtime.h"
#include "engine/store/async_journal.h"
#include "pipeline/coordinator/run/coordinator_options.h"
#include "pipeline/protocol/insight.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {

class Coordinator {
 public:
  Coordinator(Runtime& runtime, Network& network, AsyncJournal& journal, CheckpointSink& sink,
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
  // A checkpoint at the next commit. A sentence for who asked; kRefused while nothing is trained.
  Result<std::string> request_checkpoint();
  // What `status` shows, and its JSON; see docs/formats/status.md.
  RunStatus status() const;
  std::string status_json() const { return to_json(status()); }
  // For tests and the simulator: CHECKs the ledger by recounting it; whether the seat serves now.
  void check_invariants() const;
  bool serves(const Seat& seat) const;
  // Seats of those whose shadows of the stage are ready to take it over.
  std::vector<Seat> shadow_hosts(StageId stage) const;
  // For the simulator's oracles: run/reign_insight.h.
  RunGlance glance() const;
  std::string why_it_goes_back() const;  // empty: it does not
  std::set<MicrobatchId> relying_on_tries() const;
  std::vector<NamedSize> sizes() const;

 private:
  class Impl;  // the reigns, one after the other
  std::unique_ptr<Impl> impl_;
};

}  // namespace swarmline
