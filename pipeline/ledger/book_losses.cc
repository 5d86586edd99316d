// Seats that are lost: what they owned, claimed or may have added unseen.
#include <algorithm>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/ledger/book.h"

namespace swarmline {

void Ledger::Book::disown(std::uint32_t c, std::uint32_t index) {
  cells_[cell(c, index)] = kMissing;
  --owned_[c];
  if (c + 1 == columns_) {
    losses_[index] = 0.0;
    loss_recorded_[index] = 0;
  }
  refresh_leasable(index);
}

bool Ledger::Book::disown_all(std::uint32_t c, std::uint16_t number) {
  const auto own = static_cast<Cell>(number + kFirstSeat);
  bool any = false;
  for (std::uint32_t index = 0; index < indices_; ++index) {
    if (cells_[cell(c, index)] != own) continue;
    disown(c, index);
    any = true;
  }
  if (!any) return false;
  if (states_[c] == StageState::kClosing) SWARMLINE_MARK("ledger.closing_stage_lost_an_owner");
  states_[c] = StageState::kOpen;
  return true;
}

void Ledger::Book::end_claims_of(Seat seat) {
  for (auto claim = claims_.begin(); claim != claims_.end();) {
    if (claim->second.seat != seat) {
      ++claim;
      continue;
    }
    SWARMLINE_MARK("ledger.claim_ended_with_its_seat");
    const std::size_t at = claim->first;
    claim = claims_.erase(claim);
    cells_[at] = kMissing;
    refresh_leasable(static_cast<std::uint32_t>(at % indices_));
  }
}

// A lost seat may have added a contribution and sent its gradient on, unseen by the ledger: then
// nobody holds that try any more. Whether it did shows when a lower stage reports the index.
void Ledger::Book::doubt(Seat lost) {
  if (phase_.kind == PhaseKind::kEval) {  // a hop forgets an evaluation once the next one has it
    SWARMLINE_MARK("ledger.evaluation_doubted");
    for (std::uint32_t index = 0; index < next_fresh_; ++index) mark_unowned_missing(index);
    return;
  }
  if (!knows(lost.stage, 0)) return;
  const std::uint32_t c = column(lost.stage);
  for (std::uint32_t index = 0; index < next_fresh_; ++index) {
    const std::size_t at = cell(c, index);
    if (cells_[at] != kPending || claims_.contains(at)) continue;
    SWARMLINE_MARK("ledger.doubted");
    doubtful_.insert(at);
    resolve_doubt(c, index);
  }
}

// The stage below says through whom its gradient came: if that peer lives it has the try, and
// reports it. Where that stage is on its way to a contribution of its own, its word is waited for.
Ledger::Book::Doubt Ledger::Book::doubt_of(std::uint32_t c, std::uint32_t index) const {
  const std::size_t at = cell(c, index);
  if (cells_[at] != kPending || claims_.contains(at)) return Doubt::kIsOver;
  std::optional<std::uint32_t> below;  // the highest one that owns it
  for (std::uint32_t lower = c; lower-- > 0 && !below;)
    if (cells_[cell(lower, index)] >= kFirstSeat) below = lower;
  if (!below) return Doubt::kStays;
  const Through through = through_[cell(*below, index)];
  if (through == 0) return Doubt::kIsMissing;
  if (*below + 1 == c) return lost_.contains(through) ? Doubt::kIsMissing : Doubt::kIsOver;
  const bool on_its_way = cells_[cell(c - 1, index)] == kPending;
  return on_its_way ? Doubt::kStays : Doubt::kIsMissing;
}

void Ledger::Book::resolve_doubt(std::uint32_t c, std::uint32_t index) {
  const Doubt verdict = doubt_of(c, index);
  if (verdict == Doubt::kStays) return;
  doubtful_.erase(cell(c, index));
  if (verdict == Doubt::kIsOver) {
    SWARMLINE_MARK("ledger.doubt_over");
    return;
  }
  SWARMLINE_MARK("ledger.doubt_resolved");
  cells_[cell(c, index)] = kMissing;
  refresh_leasable(index);
}

// That stage has come to own the index.
void Ledger::Book::resolve_doubts(std::uint32_t c, std::uint32_t index) {
  for (std::uint32_t above = c + 1; above < columns_; ++above)
    if (doubtful_.contains(cell(above, index))) resolve_doubt(above, index);
}

// Its only try went up and came down again, and a mate has what its source added: whoever else has
// it reports it, or is doubted.
bool Ledger::Book::has_come_back(std::uint32_t index) const {
  return phase_.kind == PhaseKind::kTrain && !leased_again_.contains(index) &&
         cells_[cell(0, index)] >= kFirstSeat && through_[cell(0, index)] != 0;
}

std::vector<StageId> Ledger::Book::seat_lost(Seat lost, std::optional<Incarnation> fenced_before) {
  std::vector<StageId> touched;
  for (std::uint16_t number = 0; number < seats_.size(); ++number) {
    const Seat seat = seats_[number];
    if (seat.peer != lost.peer || seat.incarnation > lost.incarnation) continue;
    if (fenced_before && seat.incarnation <= *fenced_before) continue;
    const bool is_reduced =
        knows(seat.stage, 0) && states_[column(seat.stage)] == StageState::kReduced;
    if (is_reduced) SWARMLINE_MARK("ledger.result_outlives_a_member");
    if (knows(seat.stage, 0) && !is_reduced && disown_all(column(seat.stage), number)) {
      SWARMLINE_MARK("ledger.owner_lost");
      touched.push_back(seat.stage);
    }
    for (std::uint32_t index = 0; index < next_fresh_; ++index) {
      if (!leased_to(index, number)) continue;
      if (has_come_back(index)) {
        SWARMLINE_MARK("ledger.handed_over_with_its_source");
        continue;
      }
      const bool last = source_[index] == number;
      if (!mark_unowned_missing(index)) continue;
      if (last)
        SWARMLINE_MARK("ledger.source_lost");
      else
        SWARMLINE_MARK("ledger.earlier_source_lost");
    }
  }
  // A seat that only claimed is not in seats_.
  std::vector<Seat> claimers;
  for (const auto& [at, claim] : claims_) {
    if (claim.seat.peer == lost.peer && claim.seat.incarnation <= lost.incarnation) {
      claimers.push_back(claim.seat);
    }
  }
  for (const Seat seat : claimers) end_claims_of(seat);
  lost_.insert(through_of(lost.peer));
  doubt(lost);
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  return touched;
}

void Ledger::Book::release_owner(StageId stage, Seat seat) {
  SWARMLINE_CHECK(state(stage) != StageState::kReduced);
  const auto number = number_of(seat);
  if (number && disown_all(column(stage), *number)) SWARMLINE_MARK("ledger.owner_released");
}

// Which index was whose leased one says who holds its try, and stays.
void Ledger::Book::hand_over(StageId stage, Seat from, Seat to) {
  SWARMLINE_CHECK(state(stage) == StageState::kOpen && from.stage == stage && to.stage == stage);
  const auto giver = number_of(from);
  const auto taker = enter(to);
  if (!giver || !taker) return;
  SWARMLINE_MARK("ledger.handed_over");
  const auto first = cells_.begin() + static_cast<std::ptrdiff_t>(cell(column(stage), 0));
  std::replace(first, first + indices_, static_cast<Cell>(*giver + kFirstSeat),
               static_cast<Cell>(*taker + kFirstSeat));
}

void Ledger::Book::reduction_lost(StageId stage, const std::map<PeerId, Incarnation>& fences) {
  SWARMLINE_MARK("ledger.reduction_lost");
  move(stage, StageState::kReduced, StageState::kOpen);
  for (std::uint16_t number = 0; number < seats_.size(); ++number) {
    const auto fence = fences.find(seats_[number].peer);
    if (fence != fences.end() && seats_[number].incarnation <= fence->second) {
      disown_all(column(stage), number);
    }
  }
}

}  // namespace swarmline
