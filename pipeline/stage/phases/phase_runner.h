// The phases of a seat: opened, computed, sealed with what the ledger says is in the sums, opened
// again when contributions are lost.
//   Order:     while a seal settles, what the coordinator says of phases waits (settling()).
//   Resuming:  under another coordinator open steps go on with what is in their sums; their
//              averaging begins anew, evaluations begin from their beginning. What an earlier one
//              began and has not ended is void.
//   Ownership: writes the phases, the codecs that they travel with, and opens and settles the sums.
//   Thread:    control thread.
//   Errors:    a message that does not fit the phases is kCorrupt or kIncompatible.
//   Bounds:    kOpenPhasesMax phases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "pipeline/protocol/messages.pb.h"
#include "pipeline/stage/common/phase_book.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"
#include "pipeline/stage/gradients/gradient_exchange.h"
#include "pipeline/stage/microbatches/contributions.h"
#include "pipeline/stage/microbatches/microbatch_flow.h"
#include "pipeline/stage/phases/lease_intake.h"
#include "pipeline/stage/phases/sum_hand_over.h"

namespace swarmline {

class PhaseRunner {
 public:
  // A session's phases: two steps and as many evaluations, and those whose end is still on its way.
  static constexpr std::size_t kOpenPhasesMax = 8;

  // `on_settled`: a seal is done with, what waited for it goes on.
  PhaseRunner(StageContext& context, StageJobs& jobs, PhaseBook& phases,
              Contributions& contributions, MicrobatchFlow& flow, GradientExchange& gradients,
              LeaseIntake& leases, SumHandOver& hand_over, std::function<void()> on_settled);

  // `committed`: here, now.
  Result<void> on_open(const wire::OpenPhase& open, Version committed);
  Result<void> on_leases(const wire::Leases& leases);
  Result<void> on_seal(const wire::Seal& seal, Version committed);
  Result<void> on_reopen(const wire::Reopen& reopen, Version committed);
  Result<void> on_retire(const wire::RetirePhase& retire);
  // Leases that were held for data that is fetched: those whose data is here begin.
  void start_held();
  // Nothing of it counts any more.
  void end(const Phase& phase);
  // That version is committed here, however it came.
  void begin_at(Version version);
  // No coordinator answers; from now on nothing that the last one began goes on.
  void on_coordinator_lost();
  // `heard`: the first step whose commit this peer has not heard of.
  void on_resume(Version heard);
  void list(wire::Holdings& holdings, Version heard) const;

  bool settling() const { return settling_; }
  void check_invariants() const;

 private:
  struct SealedPhase {
    Phase phase;
    std::vector<SealedGroup> groups;
  };
  Result<void> open_again(const wire::OpenPhase& open);
  Result<void> check_open(const wire::OpenPhase& open, Version committed) const;
  Result<std::set<std::uint32_t>> owned_of(const wire::Seal& seal) const;
  void settle(const SealedPhase& sealed, const std::set<std::uint32_t>& owned);
  void mismatched(const Phase& phase, const std::vector<std::uint32_t>& missing);
  void settled(const SealedPhase& sealed);
  void average(const SealedPhase& sealed);
  void done_settling();
  void activate(const Phase& phase);
  bool start(const AttemptId& attempt, PhaseEpoch epoch, const std::string& stage_mask);
  void drop(const Phase& phase);

  StageContext& context_;
  StageJobs& jobs_;
  PhaseBook& phases_;
  Contributions& contributions_;
  MicrobatchFlow& flow_;
  GradientExchange& gradients_;
  LeaseIntake& leases_;
  SumHandOver& hand_over_;
  std::function<void()> on_settled_;
  bool settling_ = false;
  Phase settling_phase_;
  std::set<std::uint32_t> sealed_owned_;  // what the newest seal wants in that one's sums
  std::uint32_t coordinators_ = 0;        // counts them; what an earlier one began is void
  std::set<Phase> opened_before_;         // by an earlier one, and not yet by this one
};

}  // namespace swarmline
