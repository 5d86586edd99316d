// Who owns which contribution of the uncommitted phases: the coordinator's book of "exactly once".
//
// A cell is (phase, stage, index). It has no owner, a claim, or one owner (a seat). A stage is
// open, closing or reduced.
//   Attempts:  attempt 0 adds first and reports after; any other attempt claims, then computes and
//              reports. A claim blocks every other report, does not count for closing and ends with
//              its seat. A report whose claim this ledger does not know (the one before granted
//              it) counts as long as the cell is free.
//   Missing:   a cell whose owner or claim was lost, or whose source was lost before it had an
//              owner, is missing until lease() hands it out again under an attempt of the ledger's
//              own, with the stages to recompute in a mask.
//   Doubt:     a lost seat may have added a contribution whose report died with it, and have sent
//              its gradient on. Once a lower stage owns the index no sender holds that try: then
//              the cell is missing, unless the stage below says that its gradient came through a
//              peer that lives. Marking too much costs a computation, never the sum.
//   Eval:      an eval phase tracks only the last stage; it has no closing and no reduction, and
//              nothing is added: the first report of any attempt counts, without a claim.
//   Messages:  report(), claim(), lease() take what peers say: what does not fit (phase not open,
//              index or stage out of range, fenced seat, seat of another stage) is refused.
//              Everything else is CHECKed: the caller's order is wrong.
//   Thread:    control thread. No I/O, no clock; same events, same answers.
//   Bounds:    kOpenPhasesMax phases; 2 * Limits::peers_max fences; 4 bytes a cell and 11 bytes an
//              index. report() and claim() cost O(log) in claims, lease() O(stages) an index,
//              seat_lost() and ownership() one pass over the cells concerned.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace swarmline {

// One bit a stage of the model: where weight gradients are wanted.
using StageMask = std::vector<bool>;

struct IndexRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  constexpr auto operator<=>(const IndexRange&) const = default;
};

// Indices that a source shall start now, all under one attempt.
struct Lease {
  Phase phase;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  Attempt attempt;   // 0 for fresh indices
  StageMask stages;  // all ones for fresh train indices; of an eval phase only the last stage
  bool operator==(const Lease&) const = default;
};

enum class Verdict : std::uint8_t {
  kAccepted,   // the seat owns the cell now
  kDuplicate,  // it already did
  kRefused,    // take the contribution back; nothing to take back when the phase is retired or the
               // seat fenced
};

enum class StageState : std::uint8_t { kOpen, kClosing, kReduced };

struct PhaseStage {
  Phase phase;
  StageId stage;
  constexpr auto operator<=>(const PhaseStage&) const = default;
};

class Ledger {
 public:
  static constexpr std::size_t kOpenPhasesMax = 4;  // two steps, and as many evaluations
  static constexpr std::size_t kFailuresKept = 16;  // peers, of a microbatch

  Ledger();
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Before the first phase: attempts of this ledger are no other term's.
  void begin_term(Term term);
  // `indices` in 0..Limits::microbatches_per_step_max, `stages` of the model
  // in 1..Limits::stages_max.
  void open(Phase phase, Version version, std::uint32_t indices, std::uint32_t stages);
  bool is_open(Phase phase) const;
  std::vector<Phase> open_phases() const;  // sorted
  Version version(Phase phase) const;
  std::uint32_t indices(Phase phase) const;

  // At most `count_max` indices: missing ones first (but not those that failed on that source's
  // peer), then fresh ones, in index order. Empty: nothing to start.
  std::vector<Lease> lease(Phase phase, Seat source, std::uint32_t count_max);
  // Indices lease() could hand out now.
  std::uint32_t leasable(Phase phase) const;

  // `through`: the peer of the next stage whose gradient it is made of; 0: nobody knows.
  Verdict report(Phase phase, StageId stage, std::uint32_t index, Seat seat, Attempt attempt,
                 PeerId through = {});
  // A phase that another ledger had open, just opened here: none of its indices is fresh, all that
  // nobody owns is missing. collect() then enters what its peers hold: the first one counts, of any
  // attempt.
  void had_been_leased(Phase phase);
  Verdict collect(Phase phase, StageId stage, std::uint32_t index, Seat seat);
  // Granted while the cell has no owner and no other claim; repeating one's own claim is granted
  // again. Attempt 0 never claims (CHECKed). Refused: compute input gradients only.
  bool claim(Phase phase, StageId stage, std::uint32_t index, Seat seat, Attempt attempt);
  // The claimer gives up: the cell is missing. Unknown claims are ignored.
  void release_claim(Phase phase, StageId stage, std::uint32_t index, Seat seat, Attempt attempt);
  // A lease ran out of patience: every unowned, unclaimed cell of a leased index becomes missing.
  void expire(Phase phase, std::uint32_t index);
  // Whoever was leased the index last. Empty: nobody, or every stage has it.
  std::optional<Seat> source(Phase phase, std::uint32_t index) const;

  // Fences the seat (and earlier incarnations of its peer): what it owned in stages not yet reduced
  // becomes missing, its claims end, unowned cells of indices it was leased become missing, but of
  // those that it added in their first and only try, and handed over; closing
  // stages that lost an owner reopen. Returns the stages that lost an owner, sorted.
  std::vector<PhaseStage> seat_lost(Seat seat);
  // The same for one stage of one phase without fencing: a member's accumulator held another set
  // than it owns.
  void release_owner(Phase phase, StageId stage, Seat seat);
  // What `from` owns of that stage is `to`'s now, whose sums it is in. The stage is open.
  void hand_over(Phase phase, StageId stage, Seat from, Seat to);
  // A peer whose seats are over for good: nothing will name one again. False, and it is not
  // forgotten, while an open phase does.
  bool forget(PeerId peer);

  bool stage_complete(Phase phase, StageId stage) const;  // every index has an owner
  bool complete(Phase phase) const;                       // every tracked stage
  std::uint32_t owned(Phase phase, StageId stage) const;  // indices with an owner
  std::optional<Seat> owner(Phase phase, StageId stage, std::uint32_t index) const;
  // What each peer owns at the stage: sorted, disjoint, merged. One pass over its cells.
  std::map<PeerId, std::vector<IndexRange>> ownership(Phase phase, StageId stage) const;
  // Seats that own at least one index of the stage, sorted.
  std::vector<Seat> owners(Phase phase, StageId stage) const;

  StageState stage_state(Phase phase, StageId stage) const;
  void begin_close(Phase phase, StageId stage);  // open and complete -> closing
  void reopen(Phase phase, StageId stage);       // closing -> open
  void mark_reduced(Phase phase,
                    StageId stage);  // closing -> reduced: the result owns the contributions
  void reduction_lost(
      Phase phase,
      StageId stage);  // reduced, no holder lives -> open; cells of fenced owners are missing
  // Retires the phase. A train phase must be reduced at every stage, an eval phase complete.
  void commit(Phase phase);
  // Retires the phase unfinished (new era, run ends).
  void abandon(Phase phase);

  // The loss of an owned index (summed over its tokens), from the report that made it owned; the
  // first one counts until the last stage's owner is lost.
  void record_loss(Phase phase, std::uint32_t index, double loss_sum);
  double loss_sum(Phase phase) const;  // added in index order

  // Number of distinct peers on which the microbatch failed; saturates at
  // kFailuresKept. 0 when the phase or index is unknown.
  std::uint32_t report_failure(Phase phase, std::uint32_t index, PeerId peer);

  // Leased indices with a cell that nobody owns and that can't be leased again: those that a claim
  // or a live try must bring to their end. For the simulator. O(all cells of the phase).
  std::vector<std::uint32_t> relying_on_tries(Phase phase) const;
  std::size_t fences() const { return fences_.size(); }

  // CHECKs every invariant by recounting. O(all cells): for tests and the simulator.
  void check_invariants() const;

 private:
  class Book;  // one open phase
  Book& at(Phase phase);
  const Book& at(Phase phase) const;
  Book* find(Phase phase) const;
  bool fenced(Seat seat) const;

  std::map<Phase, std::unique_ptr<Book>> books_;
  std::map<PeerId, Incarnation>
      fences_;  // highest lost incarnation, of peers that are not forgotten
  // Peers' attempts are (peer << 32 | counter); the ledger's have the term above, and no peer.
  std::uint64_t attempts_ = 0;
};

}  // namespace swarmline
