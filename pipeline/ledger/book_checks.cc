// Recounts a book: what must hold after every event.
#include "base/check.h"
#include "pipeline/ledger/book.h"

namespace swarmline {

void Ledger::Book::check_invariants(const std::map<PeerId, Incarnation>& fences) const {
  SWARMLINE_CHECK(next_fresh_ <= indices_);
  SWARMLINE_CHECK(seats_.size() == numbers_.size());
  check_cells(fences);
  check_leasable();
  for (std::uint32_t c = 0; c < columns_; ++c) {
    // A stage closes and reduces over the whole batch, each index with one owner.
    SWARMLINE_CHECK(states_[c] == StageState::kOpen || owned_[c] == indices_);
    SWARMLINE_CHECK(phase_.kind == PhaseKind::kTrain || states_[c] == StageState::kOpen);
  }
}

std::vector<std::uint32_t> Ledger::Book::relying_on_tries() const {
  std::vector<std::uint32_t> indices;
  for (std::uint32_t index = 0; index < next_fresh_; ++index) {
    bool relies = false;
    for (std::uint32_t c = 0; c < columns_ && !relies; ++c)
      relies = cells_[cell(c, index)] == kPending || claims_.contains(cell(c, index));
    if (relies) indices.push_back(index);
  }
  return indices;
}

void Ledger::Book::check_cells(const std::map<PeerId, Incarnation>& fences) const {
  const auto fenced = [&](Seat seat) {
    const auto fence = fences.find(seat.peer);
    return fence != fences.end() && seat.incarnation <= fence->second;
  };
  for (std::uint32_t c = 0; c < columns_; ++c) {
    std::uint32_t owned = 0;
    for (std::uint32_t index = 0; index < indices_; ++index) {
      const Cell holder = cells_[cell(c, index)];
      if (index >= next_fresh_) SWARMLINE_CHECK(holder == kPending);
      if (holder < kFirstSeat) {
        if (c + 1 == columns_) SWARMLINE_CHECK(!loss_recorded_[index] && losses_[index] == 0.0);
        continue;
      }
      ++owned;
      const Seat seat = seats_.at(holder - kFirstSeat);
      SWARMLINE_CHECK(seat.stage == stage_of(c));
      SWARMLINE_CHECK(!claims_.contains(cell(c, index)));
      // Only a reduced result outlives the seats that made it.
      SWARMLINE_CHECK(!fenced(seat) || states_[c] == StageState::kReduced);
    }
    SWARMLINE_CHECK(owned == owned_[c]);
  }
  for (const auto& [at, claim] : claims_) {
    SWARMLINE_CHECK(cells_.at(at) < kFirstSeat && claim.attempt != Attempt(0));
    SWARMLINE_CHECK(!fenced(claim.seat));
    SWARMLINE_CHECK(claim.seat.stage == stage_of(static_cast<std::uint32_t>(at / indices_)));
  }
}

void Ledger::Book::check_leasable() const {
  for (std::uint32_t index = 0; index < indices_; ++index) {
    bool missing = false;
    for (std::uint32_t c = 0; c < columns_; ++c) {
      missing |= cells_[cell(c, index)] == kMissing && !claims_.contains(cell(c, index));
    }
    SWARMLINE_CHECK(missing == leasable_.contains(index));
    SWARMLINE_CHECK(source_[index] == kNoSource || index < next_fresh_);
  }
}

}  // namespace swarmline
