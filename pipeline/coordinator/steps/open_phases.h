// The phases that are open: on which version and with which codecs each computes, how often it was
// opened, and whether it is sealed.
//   What:      opens phases in the ledger and says so; seals; reopens a sealed step at the stages
//              that lost contributions; greets whoever is seated meanwhile.
//   Epochs:    a phase that is opened again has a higher one: whoever has not heard of it keeps
//              what comes under it, and what was leased under a sealed one is refused.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Bounds:    Ledger::kOpenPhasesMax phases, of which one is sealed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "pipeline/coordinator/members/audience.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/steps/boundary_board.h"
#include "pipeline/ledger/ledger.h"

namespace swarmline {

class OpenPhases final : public RunObserver {
 public:
  OpenPhases(const RunShape& shape, Ledger& ledger, Audience& audience, Outbox& outbox)
      : shape_(shape), ledger_(ledger), audience_(audience), outbox_(outbox) {}

  // In the ledger; announce() follows once it is known what peers hold of it.
  void open(const RunSequence::Opening& opening, Term term, std::vector<BoundaryCodecs> codecs);
  void use_codecs(const Phase& phase, std::vector<BoundaryCodecs> codecs);  // before announce()
  void announce(const Phase& phase);
  void greet(const Seat& seat);  // it has just been seated

  void seal(std::uint64_t step);
  bool is_sealed(const Phase& phase) const;
  // Stages of the sealed step that have lost contributions. True: more than before, and said so.
  bool reopen(const std::set<StageId>& incomplete);
  bool is_reopened() const { return !reopened_.empty(); }
  // What a sealed step has lost is leased once those who are to add it have been told so.
  bool may_lease(const Phase& phase) const;
  PhaseEpoch epoch(const Phase& phase) const { return phases_.at(phase).epoch; }

  void on_seat_lost(const SeatLoss& lost) override { ledger_.seat_lost(lost.seat); }
  void on_rollback() override;
  void on_retired(const Phase& phase) override;
  void check_invariants() const;

 private:
  struct Opened {
    Version version;
    std::uint32_t microbatches = 0;
    PhaseEpoch epoch;
    std::vector<BoundaryCodecs> codecs;
  };
  Frame opening_of(const Phase& phase, bool sealed) const;
  Frame reopening_of(const Phase& phase) const;

  const RunShape& shape_;
  Ledger& ledger_;
  Audience& audience_;
  Outbox& outbox_;
  std::map<Phase, Opened> phases_;
  std::optional<Phase> sealed_;
  std::set<StageId> reopened_;  // of the sealed step
};

}  // namespace swarmline
