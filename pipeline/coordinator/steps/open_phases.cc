#include "pipeline/coordinator/steps/open_phases.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

void OpenPhases::open(const RunSequence::Opening& opening, Term term,
                      std::vector<BoundaryCodecs> codecs) {
  const std::uint32_t microbatches = shape_.microbatches_of(opening.phase.kind);
  ledger_.open(opening.phase, opening.version, microbatches, shape_.stage_count());
  phases_[opening.phase] = {.version = opening.version,
                            .microbatches = microbatches,
                            .epoch = first_phase_epoch(term),
                            .codecs = std::move(codecs)};
}

void OpenPhases::use_codecs(const Phase& phase, std::vector<BoundaryCodecs> codecs) {
  phases_.at(phase).codecs = std::move(codecs);
}

Frame OpenPhases::opening_of(const Phase& phase, bool sealed) const {
  const Opened& opened = phases_.at(phase);
  wire::OpenPhase open;
  *open.mutable_phase() = to_wire(phase);
  open.set_version(opened.version.value);
  for (std::uint32_t boundary = 0; boundary < opened.codecs.size(); ++boundary) {
    wire::BoundaryCodecs* codecs = open.add_codecs();
    codecs->set_boundary(boundary);
    codecs->set_forward(opened.codecs[boundary].forward);
    codecs->set_backward(opened.codecs[boundary].backward);
  }
  open.set_microbatches(opened.microbatches);
  open.set_opening(opened.epoch.value);
  open.set_sealed(sealed);
  return make_frame(MessageKind::kOpenPhase, open);
}

Frame OpenPhases::reopening_of(const Phase& phase) const {
  wire::Reopen reopen;
  *reopen.mutable_phase() = to_wire(phase);
  reopen.set_opening(phases_.at(phase).epoch.value);
  for (const StageId stage : reopened_) reopen.add_stages(stage.value);
  return make_frame(MessageKind::kReopen, reopen);
}

void OpenPhases::announce(const Phase& phase) {
  audience_.tell_serving(opening_of(phase, false));
}

void OpenPhases::greet(const Seat& seat) {
  for (const auto& [phase, opened] : phases_) {
    const bool sealed = is_sealed(phase);
    outbox_.send(seat, opening_of(phase, sealed));
    if (sealed && !reopened_.empty()) outbox_.send(seat, reopening_of(phase));
  }
}

void OpenPhases::seal(std::uint64_t step) {
  SWARMLINE_CHECK(!sealed_);
  sealed_ = Phase{PhaseKind::kTrain, step};
  reopened_.clear();
  for (const StageSpec& stage : shape_.stages) ledger_.begin_close(*sealed_, stage.stage);
}

bool OpenPhases::is_sealed(const Phase& phase) const {
  return sealed_ == phase;
}

bool OpenPhases::reopen(const std::set<StageId>& incomplete) {
  SWARMLINE_CHECK(sealed_.has_value());
  const std::set<StageId> before = std::exchange(reopened_, incomplete);
  if (std::ranges::includes(before, incomplete)) return false;
  SWARMLINE_MARK("open_phases.reopened");
  ++phases_.at(*sealed_).epoch.value;
  audience_.tell_serving(reopening_of(*sealed_));
  return true;
}

bool OpenPhases::may_lease(const Phase& phase) const {
  if (!is_sealed(phase)) return true;
  return std::ranges::all_of(shape_.stages, [&](const StageSpec& stage) {
    return reopened_.contains(stage.stage) || ledger_.stage_complete(phase, stage.stage);
  });
}

void OpenPhases::on_rollback() {
  for (const Phase& phase : ledger_.open_phases()) ledger_.abandon(phase);
  phases_.clear();
  sealed_.reset();
  reopened_.clear();
}

void OpenPhases::on_retired(const Phase& phase) {
  phases_.erase(phase);
  if (!is_sealed(phase)) return;
  sealed_.reset();
  reopened_.clear();
}

void OpenPhases::check_invariants() const {
  SWARMLINE_CHECK(phases_.size() <= Ledger::kOpenPhasesMax);
  for (const auto& [phase, opened] : phases_)
    SWARMLINE_CHECK(ledger_.is_open(phase) && ledger_.version(phase) == opened.version);
  SWARMLINE_CHECK(!sealed_ || phases_.contains(*sealed_));
  SWARMLINE_CHECK(sealed_ || reopened_.empty());
}

}  // namespace swarmline
