#include "pipeline/coordinator/steps/straggler_detector.h"

#include <algorithm>

#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

void StragglerDetector::on_report(const wire::Report& report) {
  const Phase phase = from_wire(report.phase());
  if (phase.kind != PhaseKind::kTrain || !ledger_.is_open(phase) || phases_.is_sealed(phase))
    return;
  const Instant now = alarms_.now();
  pace_.on_report(phase.step, now);
  Duration& longest = longest_out_[phase];
  for (const wire::Contribution& contribution : report.contributions())
    if (const auto since = leases_.leased_at({phase, contribution.index()}))
      longest = std::max(longest, now - *since);
  if (ledger_.complete(phase)) {
    pace_.on_complete(phase.step);
    usually_out_.add(longest);
  }
  const std::optional<Duration> patience = pace_.patience();
  if (patience && !watched_) watch_tail(now + *patience);
}

// One timer, which looks when the last reports came: reports are too many for one each.
void StragglerDetector::watch_tail(Instant due) {
  watched_ = true;
  alarms_.at(due, [this, due] { on_tail_timer(due); });
}

void StragglerDetector::on_tail_timer(Instant due) {
  watched_ = false;
  if (life_.is_over()) return;
  const Instant now = alarms_.now();
  const Duration patience = *pace_.patience();
  std::optional<Instant> next;
  for (const Phase& phase : ledger_.open_phases()) {
    if (phase.kind != PhaseKind::kTrain || phases_.is_sealed(phase)) continue;
    const std::optional<Instant> last = pace_.last_report(phase.step);
    if (!last) continue;
    const bool paused = now >= *last + patience;
    if (now - due < knobs().overslept_min && is_held_up(phase)) back_up(phase, paused);
    const Instant again = paused ? now + patience : *last + patience;
    next = std::min(next.value_or(again), again);
  }
  if (next) watch_tail(*next);
}

// Fixed routes stay as they are; an evaluation holds a step up, and is no fault.
bool StragglerDetector::is_held_up(const Phase& phase) const {
  if (phase.kind != PhaseKind::kTrain || phases_.is_sealed(phase) || ledger_.complete(phase) ||
      !life_.is_running() || shape_.config.pipeline.wiring == WiringKind::kStatic)
    return false;
  const std::vector<Phase> open = ledger_.open_phases();
  return ledger_.leasable(phase) == 0 &&
         std::ranges::none_of(open, [](const Phase& p) { return p.kind == PhaseKind::kEval; });
}

bool StragglerDetector::is_out_for_long(const MicrobatchId& microbatch, Instant now) const {
  const std::optional<Instant> since = leases_.leased_at(microbatch);
  return since && usually_out_.patience() && now - *since > *usually_out_.patience();
}

void StragglerDetector::back_up(const Phase& phase, bool all) {
  const Instant now = alarms_.now();
  std::uint32_t count = 0;
  for (std::uint32_t index = 0; index < ledger_.indices(phase) && hedges_.has_one(); ++index) {
    if (!ledger_.source(phase, index) || backed_up_.contains({phase, index})) continue;
    if (!all && !is_out_for_long({phase, index}, now)) continue;
    if (!leases_.lease_again(phase, index)) continue;
    backed_up_.insert({phase, index});
    hedges_.spend();
    ++count;
  }
  if (!hedges_.has_one()) SWARMLINE_MARK("straggler_detector.hedges_spent");
  if (count == 0) return;
  stats_.on_backed_up(count);
  SWARMLINE_MARK("straggler_detector.backed_up");
  if (!all) SWARMLINE_MARK("straggler_detector.out_for_long");
  log(LogLevel::kDebug, "{} is held up: {} of its microbatches are handed to a second peer",
      to_string(phase), count);
  leases_.send_again();
}

void StragglerDetector::on_retired(const Phase& phase) {
  std::erase_if(backed_up_, [&](const MicrobatchId& id) { return id.phase == phase; });
  longest_out_.erase(phase);
  if (phase.kind != PhaseKind::kTrain) return;
  pace_.forget(phase.step);
  hedges_.earn(shape_.microbatches_of(phase.kind));
}

}  // namespace swarmline
