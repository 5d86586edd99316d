#include "pipeline/coordinator/run/run_lifecycle.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace swarmline {

namespace {

using enum RunState;

constexpr Transitions<RunState> kRows[] = {
    {kForming, {kRecovering}, "the journal says that peers may hold open steps"},
    {kForming, {kRollingBack}, "the journal holds a run that nobody serves"},
    {kForming, {kTraining}, "every stage has its peers"},
    {kForming, {kEnded}, "stopped, failed, or nobody joined"},
    {kForming, {kSteppedDown}, "another coordinator leads"},
    {kRecovering, {kTraining}, "who lives has said what it holds"},
    {kRecovering, {kDraining}, "the same, and its user had asked for an end"},
    {kRecovering, {kEnded}, "interrupted, or failed"},
    {kRecovering, {kSteppedDown}, "another coordinator leads"},
    {kTraining, {kDraining}, "its user asks for an end after the open step"},
    {kTraining, {kFinalCheckpoint}, "the last step is committed"},
    {kTraining, {kRollingBack}, "nobody holds a stage's state any more"},
    {kTraining, {kRestartingItself}, "nobody is heard, or a stage's last link broke"},
    {kTraining, {kEnded}, "done, interrupted, or failed"},
    {kTraining, {kSteppedDown}, "another coordinator leads"},
    {kDraining, {kFinalCheckpoint}, "the open step is committed"},
    {kDraining, {kRestartingItself}, "nobody is heard, or a stage's last link broke"},
    {kDraining, {kEnded}, "drained, interrupted, or failed"},
    {kDraining, {kSteppedDown}, "another coordinator leads"},
    {kFinalCheckpoint, {kRollingBack}, "nobody holds a stage's state any more"},
    {kFinalCheckpoint, {kRestartingItself}, "nobody is heard, or a stage's last link broke"},
    {kFinalCheckpoint, {kEnded}, "the checkpoint is in place, or failed"},
    {kFinalCheckpoint, {kSteppedDown}, "another coordinator leads"},
    {kRollingBack, {kForming}, "the next era begins with what was found"},
    {kRollingBack, {kEnded}, "stopped, or nothing can be gone back to"},
    {kRollingBack, {kSteppedDown}, "another coordinator leads"},
};

constexpr RunLifecycle::Table kTable({"Forming", "Recovering", "Training", "Draining",
                                      "FinalCheckpoint", "RollingBack", "RestartingItself",
                                      "SteppedDown", "Ended"},
                                     kRows);

// As status shows them; empty: as before.
constexpr std::array<std::string_view, kRunStates> kShown = {
    "waiting", "collecting", "training", "draining", "checkpointing", "waiting", "", "failed", ""};

}  // namespace

const RunLifecycle::Table& RunLifecycle::table() {
  return kTable;
}

void RunLifecycle::move_to(State next) {
  SWARMLINE_CHECK_MSG(kTable.allows(state(), state_of(next)),
                      std::string(name()) + " -> " + std::string(kTable.name(state_of(next))));
  state_ = std::move(next);
  if (!kShown[state_.index()].empty()) shown_ = kShown[state_.index()];
  if (const auto* ended = std::get_if<life::Ended>(&state_)) {
    if (ended->exit_code == 0) shown_ = "done";
    if (ended->exit_code == 1) shown_ = "failed";
    if (ended->exit_code == kExitOfInterrupted) shown_ = "stopped";
  }
}

std::string RunLifecycle::sentence() const {
  if (const auto* ended = std::get_if<life::Ended>(&state_)) return ended->sentence;
  if (const auto* deposed = std::get_if<life::SteppedDown>(&state_))
    return "another coordinator has taken over: " + deposed->why;
  return {};
}

void RunLifecycle::check_invariants() const {
  SWARMLINE_CHECK(!state_.valueless_by_exception() && !shown_.empty());
}

}  // namespace swarmline
