#include "pipeline/ledger/book.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "base/marks.h"

namespace swarmline {

Ledger::Book::Book(Phase phase, Version version, std::uint32_t indices, std::uint32_t stages)
    : phase_(phase),
      version_(version),
      indices_(indices),
      stages_(stages),
      columns_(phase.kind == PhaseKind::kEval ? 1 : stages),
      cells_(static_cast<std::size_t>(columns_) * indices, kPending),
      owned_(columns_, 0),
      states_(columns_, StageState::kOpen),
      source_(indices, kNoSource),
      losses_(indices, 0.0),
      loss_recorded_(indices, 0),
      through_(cells_.size(), 0) {}

StageId Ledger::Book::stage_of(std::uint32_t column) const {
  return StageId(static_cast<std::uint16_t>(column + stages_ - columns_));
}

bool Ledger::Book::knows(StageId stage, std::uint32_t index) const {
  return stage.value < stages_ && stage.value >= stages_ - columns_ && index < indices_;
}

std::uint32_t Ledger::Book::column(StageId stage) const {
  SWARMLINE_CHECK(stage.value < stages_ && stage.value >= stages_ - columns_);
  return stage.value - (stages_ - columns_);
}

std::optional<std::uint16_t> Ledger::Book::number_of(Seat seat) const {
  const auto found = numbers_.find(seat);
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::uint16_t> Ledger::Book::enter(Seat seat) {
  if (const auto number = number_of(seat)) return number;
  if (seats_.size() == kSeatsMax) return std::nullopt;
  const auto number = static_cast<std::uint16_t>(seats_.size());
  seats_.push_back(seat);
  numbers_.emplace(seat, number);
  return number;
}

bool Ledger::Book::names(PeerId peer) const {
  const auto first = numbers_.lower_bound(Seat{peer, StageId{0}, Incarnation{0}});
  return first != numbers_.end() && first->first.peer == peer;
}

// Leases

void Ledger::Book::refresh_leasable(std::uint32_t index) {
  const StageMask missing = missing_stages(index);
  const bool any = std::find(missing.begin(), missing.end(), true) != missing.end();
  if (any && index < next_fresh_) {
    leasable_.insert(index);
  } else {
    leasable_.erase(index);
  }
}

StageMask Ledger::Book::missing_stages(std::uint32_t index) const {
  StageMask mask(stages_, false);
  for (std::uint32_t c = 0; c < columns_; ++c) {
    const std::size_t at = cell(c, index);
    mask[stage_of(c).value] = cells_[at] == kMissing && !claims_.contains(at);
  }
  return mask;
}

void Ledger::Book::take_missing(std::uint32_t index, std::uint16_t source) {
  for (std::uint32_t c = 0; c < columns_; ++c) {
    const std::size_t at = cell(c, index);
    if (cells_[at] == kMissing && !claims_.contains(at)) cells_[at] = kPending;
  }
  leased_again_.insert(index);
  if (source_[index] == source) return;
  std::vector<std::uint16_t>& earlier = earlier_sources_[index];
  if (std::find(earlier.begin(), earlier.end(), source_[index]) == earlier.end()) {
    earlier.push_back(source_[index]);
  }
  source_[index] = source;
}

bool Ledger::Book::leased_to(std::uint32_t index, std::uint16_t source) const {
  if (source_[index] == source) return true;
  const auto earlier = earlier_sources_.find(index);
  return earlier != earlier_sources_.end() &&
         std::find(earlier->second.begin(), earlier->second.end(), source) != earlier->second.end();
}

std::vector<Lease> Ledger::Book::lease(Seat source, std::uint32_t count_max,
                                       std::uint64_t& attempts) {
  std::vector<Lease> leases;
  if (count_max == 0 || leasable() == 0) return leases;
  const auto number = enter(source);
  if (!number) return leases;
  std::uint32_t left = count_max;
  for (auto next = leasable_.begin(); left > 0 && next != leasable_.end();) {
    const std::uint32_t index = *next++;
    if (failed_on(index, source.peer)) {
      SWARMLINE_MARK("ledger.not_where_it_failed");
      continue;
    }
    --left;
    StageMask mask = missing_stages(index);
    const bool extends = !leases.empty() && leases.back().stages == mask &&
                         leases.back().first + leases.back().count == index;
    if (extends) {
      ++leases.back().count;
    } else {
      SWARMLINE_CHECK((attempts & UINT32_MAX) < UINT32_MAX);
      leases.push_back({phase_, index, 1, Attempt(++attempts), std::move(mask)});
    }
    take_missing(index, *number);
    SWARMLINE_MARK("ledger.missing_leased_again");
    leasable_.erase(index);
  }
  const std::uint32_t fresh = std::min(left, indices_ - next_fresh_);
  if (fresh == 0) return leases;
  StageMask all(stages_, columns_ == stages_);
  all.back() = true;
  leases.push_back({phase_, next_fresh_, fresh, Attempt(0), std::move(all)});
  std::fill_n(source_.begin() + next_fresh_, fresh, *number);
  next_fresh_ += fresh;
  return leases;
}

std::uint32_t Ledger::Book::leasable() const {
  return static_cast<std::uint32_t>(leasable_.size()) + indices_ - next_fresh_;
}

// While a claim stands its cell is not leased, missing or not.
bool Ledger::Book::mark_unowned_missing(std::uint32_t index) {
  bool any = false;
  for (std::uint32_t c = 0; c < columns_; ++c) {
    const std::size_t at = cell(c, index);
    if (cells_[at] != kPending) continue;
    cells_[at] = kMissing;
    any = true;
  }
  refresh_leasable(index);
  return any;
}

void Ledger::Book::expire(std::uint32_t index) {
  SWARMLINE_CHECK(index < indices_);
  if (index >= next_fresh_) return;
  SWARMLINE_MARK("ledger.lease_expired");
  mark_unowned_missing(index);
}

std::optional<Seat> Ledger::Book::source(std::uint32_t index) const {
  SWARMLINE_CHECK(index < indices_);
  if (index >= next_fresh_ || source_[index] == kNoSource) return std::nullopt;
  for (std::uint32_t c = 0; c < columns_; ++c)
    if (cells_[cell(c, index)] < kFirstSeat) return seats_[source_[index]];
  return std::nullopt;
}

// Reports and claims

Verdict Ledger::Book::report(StageId stage, std::uint32_t index, Seat seat, Attempt attempt,
                             PeerId through) {
  const std::uint32_t c = column(stage);
  const std::size_t at = cell(c, index);
  if (cells_[at] >= kFirstSeat) {
    if (seats_[cells_[at] - kFirstSeat] == seat) {
      SWARMLINE_MARK("ledger.report_repeated");
      return Verdict::kDuplicate;
    }
    SWARMLINE_MARK("ledger.second_owner_refused");
    return Verdict::kRefused;
  }
  // Nobody can have computed an index that no source was given.
  if (states_[c] != StageState::kOpen || index >= next_fresh_) return Verdict::kRefused;
  const auto claimed = claims_.find(at);
  const bool has_claim = claimed != claims_.end();
  if (has_claim && claimed->second != Claim{seat, attempt}) {
    SWARMLINE_MARK("ledger.report_against_claim_refused");
    return Verdict::kRefused;
  }
  // Its claim may have been another ledger's, before this term. Refused, it could be nobody's for
  // good: tries that came to that peer meanwhile have passed it by. (An evaluation adds nothing:
  // whichever attempt ends first has the loss.)
  if (phase_.kind == PhaseKind::kTrain && !has_claim && attempt != Attempt(0))
    SWARMLINE_MARK("ledger.report_outlived_its_claim");
  const auto number = enter(seat);
  if (!number) return Verdict::kRefused;
  if (has_claim) {
    SWARMLINE_MARK("ledger.claim_kept");
    claims_.erase(claimed);
  }
  cells_[at] = static_cast<Cell>(*number + kFirstSeat);
  // Later tries may have been wanted at this stage alone.
  through_[at] = attempt == Attempt(0) ? through_of(through) : Through{0};
  ++owned_[c];
  if (leasable_.contains(index)) refresh_leasable(index);  // there is less to lease now, never more
  if (!doubtful_.empty()) resolve_doubts(c, index);
  return Verdict::kAccepted;
}

void Ledger::Book::had_been_leased() {
  SWARMLINE_CHECK(next_fresh_ == 0);
  SWARMLINE_MARK("ledger.resumed");
  next_fresh_ = indices_;
  for (std::uint32_t index = 0; index < indices_; ++index) mark_unowned_missing(index);
}

Verdict Ledger::Book::collect(StageId stage, std::uint32_t index, Seat seat) {
  const std::uint32_t c = column(stage);
  const std::size_t at = cell(c, index);
  if (cells_[at] >= kFirstSeat) {
    if (seats_[cells_[at] - kFirstSeat] == seat) return Verdict::kDuplicate;
    SWARMLINE_MARK("ledger.second_holder_refused");
    return Verdict::kRefused;
  }
  SWARMLINE_MARK("ledger.collected");
  const auto number = enter(seat);
  if (!number) return Verdict::kRefused;
  cells_[at] = static_cast<Cell>(*number + kFirstSeat);
  through_[at] = 0;
  ++owned_[c];
  if (leasable_.contains(index)) refresh_leasable(index);  // there is less to lease now, never more
  return Verdict::kAccepted;
}

bool Ledger::Book::claim(StageId stage, std::uint32_t index, Seat seat, Attempt attempt) {
  const std::uint32_t c = column(stage);
  const std::size_t at = cell(c, index);
  if (cells_[at] >= kFirstSeat || states_[c] != StageState::kOpen || index >= next_fresh_) {
    SWARMLINE_MARK("ledger.claim_of_owned_refused");
    return false;
  }
  const Claim wanted{seat, attempt};
  const auto [claimed, inserted] = claims_.try_emplace(at, wanted);
  if (!inserted) {
    if (claimed->second == wanted) return true;
    SWARMLINE_MARK("ledger.second_claim_refused");
    return false;
  }
  SWARMLINE_MARK("ledger.claim_granted");
  refresh_leasable(index);
  return true;
}

void Ledger::Book::release_claim(StageId stage, std::uint32_t index, Seat seat, Attempt attempt) {
  const std::size_t at = cell(column(stage), index);
  const auto claimed = claims_.find(at);
  if (claimed == claims_.end() || claimed->second != Claim{seat, attempt}) return;
  SWARMLINE_MARK("ledger.claim_given_up");
  claims_.erase(claimed);
  // Whoever was refused while the claim stood has passed by: only a new lease brings this cell
  // back.
  cells_[at] = kMissing;
  refresh_leasable(index);
}

// Closing

bool Ledger::Book::complete() const {
  return std::all_of(owned_.begin(), owned_.end(), [&](auto n) { return n == indices_; });
}

bool Ledger::Book::all_reduced() const {
  return std::all_of(states_.begin(), states_.end(),
                     [](StageState s) { return s == StageState::kReduced; });
}

void Ledger::Book::move(StageId stage, StageState from, StageState to) {
  SWARMLINE_CHECK_MSG(state(stage) == from, to_string(phase_));
  SWARMLINE_CHECK(phase_.kind == PhaseKind::kTrain);
  states_[column(stage)] = to;
}

std::optional<Seat> Ledger::Book::owner(StageId stage, std::uint32_t index) const {
  SWARMLINE_CHECK(index < indices_);
  const Cell c = cells_[cell(column(stage), index)];
  if (c < kFirstSeat) return std::nullopt;
  return seats_[c - kFirstSeat];
}

std::map<PeerId, std::vector<IndexRange>> Ledger::Book::ownership(StageId stage) const {
  std::vector<std::vector<IndexRange>> owned(seats_.size());
  const std::uint32_t c = column(stage);
  for (std::uint32_t index = 0; index < indices_; ++index) {
    const Cell holder = cells_[cell(c, index)];
    if (holder < kFirstSeat) continue;
    std::vector<IndexRange>& ranges = owned[holder - kFirstSeat];
    if (!ranges.empty() && ranges.back().first + ranges.back().count == index) {
      ++ranges.back().count;
    } else {
      ranges.push_back({index, 1});
    }
  }
  std::map<PeerId, std::vector<IndexRange>> result;
  for (std::size_t number = 0; number < owned.size(); ++number) {
    if (owned[number].empty()) continue;
    const bool first = result.emplace(seats_[number].peer, std::move(owned[number])).second;
    SWARMLINE_CHECK(first);  // what earlier incarnations had is missing
  }
  return result;
}

std::vector<Seat> Ledger::Book::owners(StageId stage) const {
  std::vector<bool> owns(seats_.size(), false);
  const std::uint32_t c = column(stage);
  for (std::uint32_t index = 0; index < indices_; ++index) {
    const Cell holder = cells_[cell(c, index)];
    if (holder >= kFirstSeat) owns[holder - kFirstSeat] = true;
  }
  std::vector<Seat> result;
  for (std::size_t number = 0; number < seats_.size(); ++number) {
    if (owns[number]) result.push_back(seats_[number]);
  }
  std::sort(result.begin(), result.end());
  return result;
}

// Losses and failures of microbatches

void Ledger::Book::record_loss(std::uint32_t index, double loss_sum) {
  SWARMLINE_CHECK(index < indices_ && cells_[cell(columns_ - 1, index)] >= kFirstSeat);
  if (loss_recorded_[index]) return;
  losses_[index] = loss_sum;
  loss_recorded_[index] = 1;
}

double Ledger::Book::loss_sum() const {
  double sum = 0;
  for (const double loss : losses_) sum += loss;
  return sum;
}

bool Ledger::Book::failed_on(std::uint32_t index, PeerId peer) const {
  const auto failed = failures_.find(index);
  return failed != failures_.end() &&
         std::find(failed->second.begin(), failed->second.end(), peer) != failed->second.end();
}

std::uint32_t Ledger::Book::report_failure(std::uint32_t index, PeerId peer) {
  if (index >= indices_) return 0;
  std::vector<PeerId>& peers = failures_[index];
  const bool full = peers.size() >= kFailuresKept;
  SWARMLINE_MARK("ledger.failure_noted");
  if (!full && std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
  return static_cast<std::uint32_t>(peers.size());
}

}  // namespace swarmline
