#include "pipeline/coordinator/run/run_lifecycle.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace swarmline {

namespace {

constexpr RunLifecycle::Transition kTransitions[] = {
    {"Forming", "Recovering", "the journal says that peers may hold open steps"},
    {"Forming", "RollingBack", "the journal holds a run that nobody serves"},
    {"Forming", "Training", "every stage has its peers"},
    {"Forming", "Ended", "stopped, failed, or nobody joined"},
    {"Forming", "SteppedDown", "another coordinator leads"},
    {"Recovering", "Training", "who lives has said what it holds"},
    {"Recovering", "Draining", "the same, and its user had asked for an end"},
    {"Recovering", "Ended", "interrupted, or failed"},
    {"Recovering", "SteppedDown", "another coordinator leads"},
    {"Training", "Draining", "its user asks for an end after the open step"},
    {"Training", "FinalCheckpoint", "the last step is committed"},
    {"Training", "RollingBack", "nobody holds a stage's state any more"},
    {"Training", "RestartingItself", "nobody is heard, or a stage's last link broke"},
    {"Training", "Ended", "done, interrupted, or failed"},
    {"Training", "SteppedDown", "another coordinator leads"},
    {"Draining", "FinalCheckpoint", "the open step is committed"},
    {"Draining", "RestartingItself", "nobody is heard, or a stage's last link broke"},
    {"Draining", "Ended", "drained, interrupted, or failed"},
    {"Draining", "SteppedDown", "another coordinator leads"},
    {"FinalCheckpoint", "RollingBack", "nobody holds a stage's state any more"},
    {"FinalCheckpoint", "RestartingItself", "nobody is heard, or a stage's last link broke"},
    {"FinalCheckpoint", "Ended", "the checkpoint is in place, or failed"},
    {"FinalCheckpoint", "SteppedDown", "another coordinator leads"},
    {"RollingBack", "Forming", "the next era begins with what was found"},
    {"RollingBack", "Ended", "stopped, or nothing can be gone back to"},
    {"RollingBack", "SteppedDown", "another coordinator leads"},
};

// As status shows them; empty: as before.
constexpr std::array<std::string_view, RunLifecycle::kNames.size()> kShown = {
    "waiting", "collecting", "training", "draining", "checkpointing", "waiting", "", "failed", ""};

}  // namespace

std::span<const RunLifecycle::Transition> RunLifecycle::transitions() {
  return kTransitions;
}

void RunLifecycle::move_to(State next) {
  const std::string_view from = kNames[state_.index()], to = kNames[next.index()];
  SWARMLINE_CHECK_MSG(std::ranges::any_of(kTransitions,
                                          [&](const Transition& known) {
                                            return known.from == from && known.to == to;
                                          }),
                      std::string(from) + " -> " + std::string(to));
  state_ = std::move(next);
  if (!kShown[state_.index()].empty()) shown_ = kShown[state_.index()];
  if (const auto* ended = std::get_if<life::Ended>(&state_)) {
    if (ended->exit_code == 0) shown_ = "done";
    if (ended->exit_code == 1) shown_ = "failed";
  }
}

std::string RunLifecycle::sentence() const {
  if (const auto* ended = std::get_if<life::Ended>(&state_)) return ended->sentence;
  if (const auto* deposed = std::get_if<life::SteppedDown>(&state_))
    return "another coordinator has taken over: " + deposed->why;
  return {};
}

void RunLifecycle::check_invariants() const {
  SWARMLINE_CHECK(state_.index() < kNames.size() && !shown_.empty());
}

}  // namespace swarmline
