// How whoever has no state of its stage comes by one: mates freeze a committed version, joiners and
// shadows fetch it, hear of the commits since, and are seated once they hold what is committed.
//   What:      asks mates to freeze, offers what they froze, and tells again the last commits to
//              one that comes with a state of its own. Where nobody serves the stage, whoever kept
//              what is committed begins with that.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    a frozen state that does not fit its own size, or others' hashes, is left out.
//   Bounds:    one frozen state a stage, by kFreezingMatesMax mates; kRecentCommitsMax commits, as
//              long as members keep their gradients.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/states/join_desk.h"
#include "pipeline/coordinator/states/shadow_desk.h"
#include "pipeline/coordinator/steps/commit_order.h"

namespace swarmline {

class StateTransfer final : public RunObserver {
 public:
  static constexpr std::size_t kFreezingMatesMax = 4;
  static constexpr std::size_t kRecentCommitsMax = 4;

  StateTransfer(const RunShape& shape, Alarms& alarms, FailureDetector& detector,
                Membership& members, ShadowDesk& shadows, const RunSequence& sequence,
                Outbox& outbox)
      : shape_(shape),
        alarms_(alarms),
        detector_(detector),
        members_(members),
        shadows_(shadows),
        sequence_(sequence),
        outbox_(outbox) {}

  void want(const Seat& joiner);  // again: what it had is of no use
  void on_frozen(const wire::StateFrozen& frozen);
  void forget(const Seat& joiner);   // it is over, or asks for nothing any more
  void arrived(const Seat& joiner);  // it holds its state
  struct Fetched {                   // by a joiner or a shadow, from peers of the stage
    StageId stage;
    std::uint64_t bytes = 0;
    bool by_shadow = false;
  };
  std::vector<Fetched> take_fetched() { return std::exchange(fetched_, {}); }
  void wake() { dirty_ = true; }
  bool is_due() const { return dirty_; }
  void freeze();  // where somebody waits, and nobody fetches an older state
  // Who fetches one and gets no further is not waited for by others.
  void look();
  bool waits(const Seat& joiner) const { return desk_.waits(joiner); }

  // One that comes with all of `version` hears of the commits since.
  bool can_follow_on(std::uint64_t version) const;
  void follow_on(const Seat& seat, std::uint64_t version);
  void remember(CommitOrder order);

  void on_seat_lost(const SeatLoss& lost) override;
  void on_rollback() override;

 private:
  void offer(StageId stage);
  void offer_kept(StageId stage);

  const RunShape& shape_;
  Alarms& alarms_;
  FailureDetector& detector_;
  Membership& members_;
  ShadowDesk& shadows_;
  const RunSequence& sequence_;
  Outbox& outbox_;
  JoinDesk desk_;
  std::deque<CommitOrder> recent_commits_;
  std::vector<Fetched> fetched_;  // since it was asked last, which is after each event
  bool dirty_ = false;
};

}  // namespace swarmline
