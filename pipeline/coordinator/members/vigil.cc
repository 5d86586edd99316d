#include "pipeline/coordinator/members/vigil.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/marks.h"

namespace swarmline {

void Vigil::judge(const std::vector<Seat>& silent) {
  std::set<StageId> dark;
  for (const Seat& seat : silent)
    if (is_dark(seat.stage, silent)) dark.insert(seat.stage);
  std::erase_if(stages_, [&](const auto& entry) {
    if (dark.contains(entry.first)) return false;
    if (in_.members.count_ready(entry.first) > 0) {
      SWARMLINE_MARK("vigil.heard_again");
      in_.events.event("heard_again",
                       fmt::format("stage {} after {:.3g} s", entry.first.value,
                                   to_seconds(in_.alarms.now() - entry.second.since)));
    }
    return true;
  });
  std::erase_if(dark, [&](StageId stage) { return !goes_on_waiting(stage, silent); });
  for (const Seat& seat : silent)
    if (!dark.contains(seat.stage) || !in_.members.holds_state(seat))
      in_.rulings.lose(seat, fmt::format("nothing was heard from it for {:.3g} s",
                                         to_seconds(in_.detector.silence(seat, in_.alarms.now()))));
}

bool Vigil::is_dark(StageId stage, const std::vector<Seat>& silent) const {
  const std::vector<Seat> ready = in_.members.ready_of(stage);
  return !ready.empty() && std::ranges::all_of(ready, [&](const Seat& seat) {
    return std::ranges::find(silent, seat) != silent.end();
  }) && !ask_.has_heir(stage);
}

bool Vigil::goes_on_waiting(StageId stage, const std::vector<Seat>& silent) {
  const Instant now = in_.alarms.now();
  const auto [entry, begins] = stages_.try_emplace(stage);
  if (begins) {
    entry->second = {.since = now, .patience = ask_.patience()};
    if (entry->second.patience > Duration{}) {
      SWARMLINE_MARK("vigil.waits");
      in_.events.event(
          "waiting",
          fmt::format("nothing is heard from the last peers of stage {}; the run waits for them "
                      "{:.3g} s at most, then it goes back without them",
                      stage.value, to_seconds(entry->second.patience)),
          LogLevel::kWarn);
      for (const Seat& seat : silent)
        if (seat.stage == stage && in_.members.holds_state(seat)) in_.probe.ask(seat);
    }
  }
  if (now - entry->second.since < entry->second.patience) return true;
  SWARMLINE_MARK("vigil.given_up");
  ++given_up_;
  stages_.erase(entry);
  return false;
}

void Vigil::restart_deadlines() {
  for (auto& [stage, wait] : stages_) wait.since = in_.alarms.now();
}

}  // namespace swarmline
