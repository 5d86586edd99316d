// The sealed step: its groups' rounds of averaging, and what mends them.
//   What:      tells members what their accumulators must hold and whom they average with; hears
//              what they averaged to; lets those fetch a result who can't average it; gives a
//              broken round another attempt once what it reduces is complete. done(): every member
//              of every group has the same bits, and one keeper of each followed stage has them,
//              too.
//   Losses:    a member lost before anybody has its group's result breaks the round; finished
//              groups stand. What lacks contributions is reopened, at the stages concerned.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    members that can't be averaged with are lost by a ruling; a step that no number of
//              attempts ends, ends the run.
//   Bounds:    knobs().reduce_deadline in which no member gets any bytes nor computes; [net]
//              outlast_seconds without a result, however often it is tried.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/link_probe.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/deadline.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/states/shadow_desk.h"
#include "pipeline/coordinator/steps/broken_links.h"
#include "pipeline/coordinator/steps/leases.h"
#include "pipeline/coordinator/steps/open_phases.h"
#include "pipeline/coordinator/steps/reduce_board.h"
#include "pipeline/coordinator/steps/seal_writer.h"
#include "pipeline/ledger/ledger.h"

namespace swarmline {

class CommitRound final : public RunObserver {
 public:
  struct Needs {  // services, and parts below it
    const RunShape& shape;
    Alarms& alarms;
    const FailureDetector& detector;
    const Membership& members;
    LinkProbe& probe;
    ShadowDesk& shadows;
    Ledger& ledger;
    OpenPhases& phases;
    Leases& leases;
    Outbox& outbox;
    EventLog& events;
    Rulings& rulings;
  };
  // `patience`: how long waiting for a stage's last peer is worth (run/bargain.h).
  CommitRound(const Needs& needs, std::function<Duration()> patience)
      : in_(needs),
        patience_(std::move(patience)),
        seals_({.shape = needs.shape,
                .members = needs.members,
                .ledger = needs.ledger,
                .outbox = needs.outbox}),
        deadline_(needs.alarms) {}

  // The step is complete: seals it and begins its rounds.
  void begin(std::uint64_t step, Term term);
  bool is_active() const { return board_.active(); }
  const ReduceBoard& board() const { return board_; }
  Phase phase() const { return {PhaseKind::kTrain, board_.step()}; }

  // ---- What members say; false: it does not count ----
  bool on_reduced(const wire::Reduced& reduced);
  void on_round_broken(const wire::RoundBroken& broken);
  void on_seal_mismatch(const Seat& seat, const wire::SealMismatch& mismatch);
  // ---- Who comes and goes ----
  void on_seat_lost(const SeatLoss& lost) override;
  void add_keeper(const Seat& keeper);  // ready meanwhile: it fetches each result
  void lose_keeper(const Seat& keeper);
  void seat_keeper(const Seat& keeper, const Seat& seat);  // it takes its stage over
  void add_late(const Seat& seat);  // seated meanwhile: it fetches each result, and is waited for
  // The seat's stage has nothing that it has yet to fetch.
  bool has_result(const Seat& seat) const;

  // ---- Settling ----
  void wake() { dirty_ = true; }
  bool is_due() const { return dirty_ && board_.active(); }
  // Reopens what is incomplete, starts again what is broken. True: all is done, and to be
  // committed.
  bool mend();
  void end();                              // it is committed
  Duration took() const { return took_; }  // the last one, from its seal; 0: none is known

  void on_rollback() override {
    end();
    seals_.fabrics().on_rollback();
  }
  void check_invariants() const;
  std::uint32_t given_up() const { return given_up_; }  // waits for last peers, ever

 private:
  void send_seals(const std::vector<GroupId>& groups);
  std::vector<Seat> members_of(GroupId group) const;
  std::vector<Seat> keepers_of(GroupId group) const;
  std::optional<Seat> link_seat(const Seat& holder) const;
  void send_fetch(GroupId group, const std::vector<Seat>& to);
  void fetch_late(GroupId group);
  void fetch_missing(GroupId group);
  void mark_held(const std::vector<StageId>& stages);
  std::vector<GroupId> complete_again();
  void restart(const std::vector<GroupId>& groups);
  void on_fabric_failed(const wire::RoundBroken& broken);
  void retry_over_broken_link(const wire::RoundBroken& broken, std::uint64_t step);
  void ask_whose_end_it_is(const Seat& one, const Seat& other);
  bool is_last_holder(const Seat& seat) const;
  bool bears_with(const Seat& seat);
  void average_again(GroupId group);
  Duration retry_pause(RoundAttempt attempt) const;
  bool has_outlasted(Instant since) const;
  Instant newest_move() const;
  void arm_deadline(Duration wait);
  void on_deadline();

  struct Wait {
    Instant since{};
    Duration patience{};
  };

  Needs in_;
  std::function<Duration()> patience_;
  SealWriter seals_;
  ReduceBoard board_;
  RoundAttempt first_attempt_;  // of this term
  Deadline deadline_;
  Instant result_{};  // when a group's result came, or the step was sealed
  Instant sealed_{};  // when members were told last to average
  Duration took_{};
  BrokenLinks links_;                   // in this step
  std::map<StageId, Wait> last_peers_;  // whose links end, in this step
  std::uint32_t given_up_ = 0;
  std::map<Seat, std::uint32_t> mismatches_;
  bool dirty_ = false;
};

// Whose microbatches of a stage that is being averaged would be in no sum: there is nobody.
std::vector<Seat> owners_outside(const Ledger& ledger, const Phase& phase, StageId stage,
                                 const std::vector<Seat>& members);

}  // namespace swarmline
