// The peers of the next stage that may take what goes on, and the rule that picks among them.
//   Out:       a peer whose link can't be had, or is dialled for long already, is left out while
//              another one is not: its link is tried for anew after a pause, twice as long each
//              time (knobs: left_out_min, left_out_max), and it is back once there is a link.
//              Where all are out, all may be picked.
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
    double weight = 1;  // > 0
  };

  explicit NextStage(std::unique_ptr<Wiring> wiring) : wiring_(std::move(wiring)) {}

  // Who may be named from now on; the wiring may have no room for all. Says who no longer may.
  std::vector<PeerId> set(const std::vector<Candidate>& candidates);
  // False: that peer was no candidate, or is one by a later seat.
  bool remove(const Seat& lost);
  // `late`: whoever is expected to end it first. Empty: nobody can take it now.
  std::optional<Seat> pick(const MicrobatchId& microbatch, const std::vector<PeerId>& exclude,
                           bool late);
  // ---- Links ----
  // Its link is being dialled for long; false: it is no candidate, or out already.
  bool leave_out(const Seat& peer);
  // Its link can't be had: try for it after so long. None: that runs already, or it is no
  // candidate.
  std::optional<Duration> pause_for(const Seat& peer);
  bool pause_over(const Seat& peer);  // false: it is not out any more
  // There is a link; false: it was not out.
  bool back(const Seat& peer);
  // A link or a dial is over: unless a pause runs, nobody tries for it any more, and it is back.
  bool undialled(const Seat& peer) { return !is_pausing(peer) && back(peer); }
  bool is_out(PeerId peer) const { return !all_out() && out_.contains(peer); }

  // Those that may be picked: all of them are among `tried`; how many they are.
  bool all_in(const std::vector<PeerId>& tried) const;
  std::size_t size() const;
  Wiring& wiring() { return *wiring_; }

 private:
  struct Out {
    std::uint32_t failures = 0;  // in a row
    bool pausing = false;
  };
  bool is_candidate(const Seat& peer) const;
  bool is_pausing(const Seat& peer) const;
  bool all_out() const { return out_.size() == candidates_.size(); }

  const std::unique_ptr<Wiring> wiring_;
  std::map<PeerId, Seat> candidates_;
  std::map<PeerId, Out> out_;  // of these
};

}  // namespace swarmline
