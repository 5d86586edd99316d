// The peers of the next stage that may take what goes on, and the rule that picks among them.
//   Ownership: owns the wiring and the candidates. Thread: control thread; pure.
//   Bounds:    as many candidates as the wiring has room for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "engine/config/run_config.h"
#include "pipeline/wiring/wiring.h"

namespace swarmline {

// The rule that the config names.
std::unique_ptr<Wiring> make_wiring(const RunConfig& config, const Seat& self);

class NextStage {
 public:
  struct Candidate {
    Seat seat;
    ServicePrior prior;
  };

  explicit NextStage(std::unique_ptr<Wiring> wiring) : wiring_(std::move(wiring)) {}

  // Who may be named from now on; the wiring may have no room for all. Says who no longer may.
  std::vector<PeerId> set(const std::vector<Candidate>& candidates);
  // False: that peer was no candidate, or is one by a later seat.
  bool remove(const Seat& lost);
  // `late`: whoever is expected to end it first. Empty: nobody can take it now.
  std::optional<Seat> pick(const MicrobatchId& microbatch, const std::vector<PeerId>& exclude,
                           bool late);
  bool all_in(const std::vector<PeerId>& tried) const;
  std::size_t size() const { return candidates_.size(); }
  Wiring& wiring() { return *wiring_; }

 private:
  const std::unique_ptr<Wiring> wiring_;
  std::map<PeerId, Seat> candidates_;
};

}  // namespace swarmline
