// How a stage gets the state that it begins with: made from the seed, fetched from members that
// hold a frozen version, from the coordinator's checkpoint, or from what this peer kept of an
// earlier seat.
//
//     Here <- Loading <- Fetching <- Wanted        (and back to Wanted when nobody has it any more,
//       ^        ^------ Comparing <---'            or when it is too far behind)
//
//   Comparing: what was kept is compared with what is offered by the hashes, piece by piece between
//              other jobs, as it was frozen: a version's number says nothing of its bits.
//   Shadows:   one piece at a time, then a rest as long as it took: half of the link is left to the
//              stage that this peer serves.
//   Early:     the parameters come first. While the rest is on its way they may be loaded, so that
//              the stage can be computed; then few pieces are asked for at a time.
//   Delay:     the version before comes last. Once something was committed since, nobody computes
//              on it: what is not here of it by then is done without.
//   Ownership: owns what is fetched until it is loaded, and what was kept until a state is offered.
//   Thread:    control thread; hashing and loading are jobs.
//   Errors:    a state of another size is kIncompatible; one that keeps coming damaged ends the
//              peer. A holder that does not answer is left alone while another has the state.
//   Bounds:    one version at a time, once its size; knobs().fetch_tries_max damaged in a row.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "base/transition_table.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/common/piece_fetch.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"
#include "pipeline/stage/state/kept_state.h"

namespace swarmline {

enum class StateOrigin : std::uint8_t { kMates, kCheckpoint, kOwnCopy };

enum class StateProgress : std::uint8_t { kHere, kWanted, kComparing, kFetching, kLoading };

namespace state_progress {
using enum StateProgress;

inline constexpr Transitions<StateProgress> kRows[] = {
    {kHere, {kWanted}},
    {kWanted, {kComparing, kFetching, kLoading}},
    {kComparing, {kHere, kComparing, kFetching, kLoading, kWanted}},
    {kFetching, {kHere, kComparing, kFetching, kLoading, kWanted}},
    {kLoading, {kHere, kWanted}},
    {kWanted, {kHere}, "a shadow's was taken over"},
};
}  // namespace state_progress

inline constexpr TransitionTable<StateProgress, 5> kStateProgress({"here", "wanted", "comparing",
                                                                   "fetching", "loading"},
                                                                  state_progress::kRows);

class StateExchange {
 public:
  struct Hooks {
    std::function<void(Version)> on_offered;  // another than before: what it has applied is over
    std::function<void()> on_lost;            // nobody has it any more
    // `all_in_use`: with a delay, the version before as well.
    std::function<void(Version, std::uint64_t digest, StateOrigin, bool all_in_use)> on_here;
    // Something was committed since the version that is fetched.
    std::function<bool()> is_behind;
    // Of that version nothing was committed since, and it is computed on as it is: its parameters,
    // which come first, are worth loading before the rest is here.
    std::function<bool(Version)> parameters_serve;
    std::function<void(Version)> on_parameters_here;
    // Pieces to ask for at a time: whoever serves its stage meanwhile leaves the link to that.
    std::function<std::size_t()> asks_max;
  };

  // `here`: the model begins with it. `shadow`: its peer serves another stage over the same link.
  StateExchange(StageContext& context, StageJobs& jobs, bool here, bool shadow,
                std::shared_ptr<KeptState> kept, Hooks hooks);

  // Asks for a state: a joiner's first one, or one that is newer.
  void want();
  // In an era that begins with a checkpoint: from the coordinator.
  void fetch_saved(Version version);
  // This peer's shadow of the stage had it all.
  void taken_over();
  Result<void> on_offer(const wire::StateOffer& offer);
  void on_piece(const Seat& from, const wire::Piece& piece, BytesView bytes);
  void on_link_lost(const Seat& peer);
  void on_peer_lost(const Seat& lost);
  // It serves no more until all is here.
  void hurry() { pump(); }
  void on_committed_since();  // is_behind may have become true
  void silence() { guard_.drop_callbacks(); }

  bool here() const { return progress_ == StateProgress::kHere; }
  StateProgress progress() const { return progress_; }
  void check_invariants() const;

 private:
  struct Fetch {
    Version version;
    PieceFetch pieces;
    std::vector<std::string> hashes = {};
    StateOrigin origin = StateOrigin::kMates;
    bool paused = false;   // nobody has it now
    bool resting = false;  // between two pieces of a shadow
    // The parameters are on their way into the model, or there.
    bool loading_parameters = false;
    bool has_parameters = false;
    std::uint32_t damaged_times = 0;  // in a row: what nobody sent whole was waited for
    Instant asked{};                  // the newest piece
    bool watched = false;             // for holders that are late
  };
  void become(StateProgress progress);
  bool is_saved() const { return fetch_->origin == StateOrigin::kCheckpoint; }
  void begin_with_kept(Version version);
  void compare(const std::shared_ptr<KeptState>& kept, std::size_t piece);
  void pump();
  bool load_without_version_before();
  void load_parameters();
  void ask(const PieceFetch::Ask& ask);
  void watch_holders();
  void on_stuck();
  void after_pause();
  void rest_and_pump();
  void load(Buffer state);

  StageContext& context_;
  StageJobs& jobs_;
  const bool shadow_;
  Hooks hooks_;
  StateProgress progress_;
  std::optional<Fetch> fetch_;
  std::uint32_t fetches_ = 0;        // counts them: what comes of an earlier one is late
  std::shared_ptr<KeptState> kept_;  // until a state is offered
  CallbackGuard guard_;
};

}  // namespace swarmline
