#include "pipeline/coordinator/run/run_sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace swarmline {

RunSequence::RunSequence(const SequenceOptions& options)
    : options_(options),
      next_step_(options.begin),
      sealed_(options.begin),
      committed_(options.begin),
      evaluated_below_(std::max<std::uint64_t>(1, computed_on(options.begin))) {}

std::uint64_t RunSequence::computed_on(std::uint64_t step) const {
  return options_.delay == 0 || step <= options_.delayed_since ? step : step - 1;
}

bool RunSequence::eval_due(std::uint64_t version) const {
  if (!options_.eval || version < evaluated_below_ || draining_) return false;
  if (version == options_.steps) return true;
  return options_.eval_every_steps > 0 && version % options_.eval_every_steps == 0;
}

void RunSequence::restore(std::uint64_t committed, bool ahead, std::uint64_t evaluated) {
  next_step_ = sealed_ = committed_ = committed;
  ahead_ = ahead;
  restored_ = true;
  evaluated_below_ = evaluated + 1;
}

bool RunSequence::may_run_ahead() const {
  return options_.delay == 1 && options_.overlaps && sealed_ + 1 == next_step_ &&
         committed_ == sealed_ && next_step_ > options_.delayed_since &&
         next_step_ < options_.steps && !draining_;
}

std::vector<RunSequence::Opening> RunSequence::take_openings(bool all_leased) {
  std::vector<Opening> openings;
  const bool all_sealed = sealed_ == next_step_;
  if (!all_sealed && !(all_leased && may_run_ahead())) return openings;
  take_next(openings);
  if (std::exchange(ahead_, false)) take_next(openings);
  return openings;
}

void RunSequence::take_next(std::vector<Opening>& openings) {
  const std::uint64_t version = computed_on(next_step_);
  const bool trains = next_step_ < options_.steps && !draining_;
  // After the last step the newest version is computed on, once it is there.
  const std::uint64_t computed = trains ? version : options_.steps;
  if (committed_ < computed) return;
  if (eval_due(computed) && (trains || committed_ == options_.steps)) {
    openings.push_back({{PhaseKind::kEval, computed}, Version{computed}});
    evaluated_below_ = computed + 1;
    open_evals_.insert(computed);
  }
  if (trains) {
    SWARMLINE_CHECK(committed_ == version || next_step_ == options_.begin || restored_);
    openings.push_back({{PhaseKind::kTrain, next_step_}, Version{version}});
    ++next_step_;
  }
}

bool RunSequence::may_seal(std::uint64_t step) const {
  const bool evaluated = open_evals_.empty() || *open_evals_.begin() > computed_on(step);
  return evaluated && step == sealed_ && committed_ == step;
}

void RunSequence::on_sealed(std::uint64_t step) {
  SWARMLINE_CHECK(step == sealed_);
  ++sealed_;
}

void RunSequence::on_committed(std::uint64_t step) {
  SWARMLINE_CHECK(step == committed_);
  ++committed_;
}

void RunSequence::on_evaluated(std::uint64_t version) {
  SWARMLINE_CHECK(open_evals_.erase(version) == 1);
}

bool RunSequence::finished() const {
  const bool trained = draining_ || next_step_ == options_.steps;
  const bool evaluated = draining_ || !options_.eval || evaluated_below_ > options_.steps;
  return trained && evaluated && sealed_ == next_step_ && committed_ == next_step_ &&
         open_evals_.empty();
}

}  // namespace swarmline
