// The commits of a stage: heard of in order, each applied once its gradients are in their places.
//   What:      a seated peer hears of a commit when it is next; a joiner hears of all that follow
//              the state that it fetches, and applies them once it has that. Whoever serves with
//              the parameters alone is such a joiner again from the next commit on.
//   Ownership: owns the commits that wait, the version that is committed here and the newest one
//              whose digest is known. Asks GradientExchange for gradients.
//   Thread:    control thread; the optimizer's step is a job.
//   Errors:    a commit that is not the next one, or can't be: kIncompatible, kCorrupt.
//   Bounds:    kFollowedMax commits behind; then a joiner needs a newer state.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/ids.h"
#include "engine/optimizer/flat_optimizer.h"
#include "pipeline/protocol/messages.pb.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"
#include "pipeline/stage/gradients/gradient_exchange.h"

namespace swarmline {

struct StageCommit {
  struct Group {
    GroupId group;
    RoundAttempt attempt;
    std::uint64_t digest = 0;
  };
  std::uint64_t step = 0;
  bool skipped = false;
  bool again = false;  // by another coordinator: the digests say what is meant, not the attempts
  bool keep = false;   // somebody has yet to fetch the gradients
  std::vector<Group> groups;
  StepScalars scalars;
};

class CommitQueue {
 public:
  static constexpr std::size_t kFollowedMax = 64;

  struct Reached {  // the newest version whose digest is known
    Version version;
    std::uint64_t digest = 0;
  };
  struct Hooks {
    std::function<void(const Phase&)> on_over;  // the step: nothing of it counts any more
    std::function<void(Version)> on_stepped;    // the device has that version
    std::function<void()> on_idle;              // nothing waits, or all that does can't go on
    std::function<void()> on_too_far_behind;    // a newer state is needed
    std::function<void()> on_early_seat_over;   // it follows again
  };

  // `following`: it has no seat yet. `paused`: it has no state yet.
  CommitQueue(StageContext& context, StageJobs& jobs, GradientExchange& gradients, bool following,
              bool paused, Hooks hooks);

  Result<void> on_commit(const wire::Commit& message);
  Result<void> follow(const wire::Commit& message);  // while it has no seat
  void advance();
  // That version's state is here.
  void begin_at(Version version);
  // The state to come has those applied.
  void drop_below(Version version);
  void drop_all();
  // That version's parameters are here, and the rest is not: commits wait.
  void hold_at(Version version);
  void say_ready(std::uint64_t digest);
  // It has its seat. True: it had none before.
  bool take_seat();

  bool following() const { return following_; }
  bool paused() const { return paused_; }
  // It has its seat with the parameters alone.
  bool early() const { return early_ && !following_; }
  bool empty() const { return waiting_.empty(); }
  Version committed() const { return committed_; }
  Version heard() const { return Version{committed_.value + waiting_.size()}; }
  const Reached& reached() const { return reached_; }
  void check_invariants() const;

 private:
  void end_early_seat(const wire::Commit& message);
  void expect_gradients(const StageCommit& commit);
  bool gradients_here(const StageCommit& commit);
  void apply(const StageCommit& commit);
  void on_stepped(Version version, std::uint64_t digest);

  StageContext& context_;
  StageJobs& jobs_;
  GradientExchange& gradients_;
  Hooks hooks_;
  bool following_;
  bool paused_;
  bool early_ = false;  // parameters without the rest
  std::deque<StageCommit> waiting_;
  Version committed_;
  Reached reached_;
};

}  // namespace swarmline
