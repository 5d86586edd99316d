// Between two coordinators: what a seated peer keeps while it has none, what it says of it to the
// next one, and how it goes on there.
#include <algorithm>

#include "pipeline/stage/seat/seated_stage.h"

namespace swarmline {

// A seal that settles and whatever waits behind it were begun by one that is gone; the sums, the
// committed state and the reduced gradients of commits stay.
void SeatedStage::on_coordinator_lost() {
  ++reign_;
  inbox_.clear();
  sealing_ = false;
  flow_.set_led(false);
}

wire::Holdings SeatedStage::holdings() const {
  wire::Holdings holdings;
  const std::uint64_t heard = committed_.value + commits_.size();
  holdings.set_era(context_.era.value);
  holdings.set_version(heard);
  holdings.set_stepped(reached_.version);
  holdings.set_state_digest(reached_.digest);
  holdings.set_wanted(wanted_);
  holdings.set_leased(leased_);
  for (const Phase& phase : phases_.open()) {
    if (phase.kind == PhaseKind::kEval || phase.step < heard) continue;
    wire::PhaseHoldings* held = holdings.add_phases();
    *held->mutable_phase() = to_wire(phase);
    held->set_version(phases_.version(phase).value);
    context_.codecs.fill(phase, *held);
    contributions_.list(*held);
  }
  return holdings;
}

// Open steps go on with what is in their sums; their averaging begins anew, evaluations from their
// beginning.
Result<void> SeatedStage::on_resume() {
  on_coordinator_lost();
  flow_.set_led(true);
  const std::uint64_t heard = committed_.value + commits_.size();
  const auto void_now = [&](const auto& entry) { return entry.first.phase.step >= heard; };
  std::erase_if(fetches_, void_now);
  std::erase_if(fetched_, void_now);
  opened_before_.clear();
  for (const Phase& phase : phases_.open()) {
    if (phase.kind == PhaseKind::kTrain) {
      averager_.abandon(phase);
      if (phase.step >= heard) opened_before_.insert(phase);
      continue;
    }
    phases_.seal(phase);
    flow_.drop(phase);
    contributions_.retire(phase);
  }
  // The oldest version in use is the one before the newest.
  phases_.forget_evals(heard > 0 ? heard - 1 : 0);
  return {};
}

// What is in the sums stays, and more may come.
Result<void> SeatedStage::open_again(const wire::OpenPhase& open) {
  const Phase phase = from_wire(open.phase());
  opened_before_.erase(phase);
  if (open.version() != phases_.version(phase).value ||
      open.microbatches() != phases_.microbatches(phase))
    return fail(ErrorCode::kCorrupt, to_string(phase) + " is opened again as another one");
  phases_.reopen(phase, PhaseEpoch{open.opening()});
  contributions_.reopen(phase);
  control([]() -> Result<void> { return {}; }, [this, phase] { activate(phase); });
  return {};
}

// Of the same bytes by its digest, whichever attempt this peer averaged last.
void SeatedStage::name_attempts(wire::Commit& commit) const {
  for (wire::GroupDigest& group : *commit.mutable_groups())
    for (const auto& [key, digest] : digests_)
      if (key.phase == Phase{PhaseKind::kTrain, commit.step()} &&
          key.group == GroupId{group.group()} && digest == group.digest())
        group.set_attempt(key.attempt.value);
}

}  // namespace swarmline
