// One open phase of the ledger: the cells, claims, leases, losses and failures of its microbatches.
// Stages are columns: a train phase has one per stage of the model, an eval phase only the last
// stage's.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/ids.h"
#include "pipeline/ledger/ledger.h"

namespace swarmline {

class Ledger::Book {
 public:
  Book(Phase phase, Version version, std::uint32_t indices, std::uint32_t stages);

  bool knows(StageId stage, std::uint32_t index) const;
  // Column of a tracked stage (CHECKed).
  std::uint32_t column(StageId stage) const;

  std::vector<Lease> lease(Seat source, std::uint32_t count_max, std::uint64_t& attempts);
  std::uint32_t leasable() const;

  Verdict report(StageId stage, std::uint32_t index, Seat seat, Attempt attempt, PeerId through);
  void had_been_leased();
  Verdict collect(StageId stage, std::uint32_t index, Seat seat);
  bool claim(StageId stage, std::uint32_t index, Seat seat, Attempt attempt);
  void release_claim(StageId stage, std::uint32_t index, Seat seat, Attempt attempt);
  void expire(std::uint32_t index);
  std::optional<Seat> source(std::uint32_t index) const;

  // Loses the peer's seats later than `fenced_before` up to `lost`. Returns the stages that lost an
  // owner.
  std::vector<StageId> seat_lost(Seat lost, std::optional<Incarnation> fenced_before);
  bool names(PeerId peer) const;  // any of its seats
  void release_owner(StageId stage, Seat seat);
  void hand_over(StageId stage, Seat from, Seat to);
  void reduction_lost(StageId stage, const std::map<PeerId, Incarnation>& fences);

  bool stage_complete(StageId stage) const { return owned_[column(stage)] == indices_; }
  bool complete() const;
  std::uint32_t owned(StageId stage) const { return owned_[column(stage)]; }
  std::optional<Seat> owner(StageId stage, std::uint32_t index) const;
  std::map<PeerId, std::vector<IndexRange>> ownership(StageId stage) const;
  std::vector<Seat> owners(StageId stage) const;

  StageState state(StageId stage) const { return states_[column(stage)]; }
  void move(StageId stage, StageState from, StageState to);
  bool all_reduced() const;

  void record_loss(std::uint32_t index, double loss_sum);
  double loss_sum() const;
  std::uint32_t report_failure(std::uint32_t index, PeerId peer);

  Phase phase() const { return phase_; }
  Version version() const { return version_; }
  std::uint32_t indices() const { return indices_; }
  std::vector<std::uint32_t> relying_on_tries() const;
  void check_invariants(const std::map<PeerId, Incarnation>& fences) const;

 private:
  // What a cell holds: nobody yet, nobody any more, or the owner's number in seats_ + kFirstSeat.
  using Cell = std::uint16_t;
  static constexpr Cell kPending = 0;
  static constexpr Cell kMissing = 1;
  static constexpr Cell kFirstSeat = 2;
  static constexpr std::uint16_t kNoSource = 0xFFFF;
  static constexpr std::size_t kSeatsMax = 0xFFFF - kFirstSeat;

  struct Claim {
    Seat seat;
    Attempt attempt;
    bool operator==(const Claim&) const = default;
  };

  std::size_t cell(std::uint32_t column, std::uint32_t index) const {
    return static_cast<std::size_t>(column) * indices_ + index;
  }
  StageId stage_of(std::uint32_t column) const;
  std::optional<std::uint16_t> number_of(Seat seat) const;
  std::optional<std::uint16_t> enter(Seat seat);  // empty: kSeatsMax reached
  void disown(std::uint32_t column, std::uint32_t index);
  bool disown_all(std::uint32_t column, std::uint16_t number);
  void end_claims_of(Seat seat);
  // The peer of the stage above by which a contribution came, as far as it fits; those that are
  // alike are taken for one, which marks too much.
  using Through = std::uint16_t;
  static Through through_of(PeerId peer) { return static_cast<Through>(peer.value); }
  enum class Doubt : std::uint8_t { kStays, kIsOver, kIsMissing };
  void doubt(Seat lost);
  void resolve_doubts(std::uint32_t column, std::uint32_t index);
  void resolve_doubt(std::uint32_t column, std::uint32_t index);
  Doubt doubt_of(std::uint32_t column, std::uint32_t index) const;
  bool mark_unowned_missing(std::uint32_t index);  // false: nothing was pending
  void refresh_leasable(std::uint32_t index);
  StageMask missing_stages(std::uint32_t index) const;
  bool failed_on(std::uint32_t index, PeerId peer) const;
  void take_missing(std::uint32_t index, std::uint16_t source);
  bool leased_to(std::uint32_t index, std::uint16_t source) const;
  bool has_come_back(std::uint32_t index) const;
  void check_cells(const std::map<PeerId, Incarnation>& fences) const;
  void check_leasable() const;

  Phase phase_;
  Version version_;
  std::uint32_t indices_;
  std::uint32_t stages_;                 // of the model
  std::uint32_t columns_;                // tracked
  std::vector<Cell> cells_;              // column by column
  std::vector<std::uint32_t> owned_;     // by column
  std::vector<StageState> states_;       // by column
  std::map<std::size_t, Claim> claims_;  // by cell
  std::set<std::size_t> doubtful_;       // pending cells that a lost seat may have added unseen
  std::vector<std::uint16_t> source_;    // by index: whoever was leased it last
  std::map<std::uint32_t, std::vector<std::uint16_t>>
      earlier_sources_;                      // their tries may still run
  std::set<std::uint32_t> leased_again_;     // indices
  std::uint32_t next_fresh_ = 0;             // indices below were leased at least once
  std::set<std::uint32_t> leasable_;         // leased indices with a missing, unclaimed cell
  std::vector<double> losses_;               // by index
  std::vector<std::uint8_t> loss_recorded_;  // by index
  std::vector<Through> through_;  // by cell: of an owned one's first try; 0: nobody knows
  std::set<Through> lost_;        // peers that lost a seat since the phase was opened
  std::map<std::uint32_t, std::vector<PeerId>> failures_;
  std::vector<Seat> seats_;
  std::map<Seat, std::uint16_t> numbers_;  // of seats_
};

}  // namespace swarmline
