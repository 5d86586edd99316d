#include "pipeline/ledger/ledger.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "base/marks.h"
#include "pipeline/ledger/book.h"

namespace swarmline {

namespace {
// Of those that are there and were lost before, and of those that are lost.
constexpr std::size_t kFencesMax = 2 * std::size_t{Limits::peers_max};
}  // namespace

Ledger::Ledger() = default;
Ledger::~Ledger() = default;

Ledger::Book* Ledger::find(Phase phase) const {
  const auto found = books_.find(phase);
  return found == books_.end() ? nullptr : found->second.get();
}

Ledger::Book& Ledger::at(Phase phase) {
  Book* book = find(phase);
  SWARMLINE_CHECK_MSG(book != nullptr, to_string(phase) + " is not open");
  return *book;
}

const Ledger::Book& Ledger::at(Phase phase) const {
  const Book* book = find(phase);
  SWARMLINE_CHECK_MSG(book != nullptr, to_string(phase) + " is not open");
  return *book;
}

bool Ledger::fenced(Seat seat) const {
  const auto fence = fences_.find(seat.peer);
  return fence != fences_.end() && seat.incarnation <= fence->second;
}

void Ledger::begin_term(Term term) {
  constexpr int kTermBit = 47;  // a peer's id and its counter are below, the sign above
  SWARMLINE_CHECK(term.value >= 1 && term.value <= 1U << 15 && books_.empty());
  attempts_ = (term.value - 1) << kTermBit;
}

void Ledger::open(Phase phase, Version version, std::uint32_t indices, std::uint32_t stages) {
  SWARMLINE_CHECK_MSG(!is_open(phase), to_string(phase) + " is open already");
  SWARMLINE_CHECK(books_.size() < kOpenPhasesMax);
  SWARMLINE_CHECK(indices <= Limits::microbatches_per_step_max);
  SWARMLINE_CHECK(stages >= 1 && stages <= static_cast<std::uint32_t>(Limits::stages_max));
  books_.emplace(phase, std::make_unique<Book>(phase, version, indices, stages));
}

bool Ledger::is_open(Phase phase) const {
  return books_.contains(phase);
}

std::vector<Phase> Ledger::open_phases() const {
  std::vector<Phase> phases;
  for (const auto& [phase, book] : books_) phases.push_back(phase);
  return phases;
}

Version Ledger::version(Phase phase) const {
  return at(phase).version();
}
std::uint32_t Ledger::indices(Phase phase) const {
  return at(phase).indices();
}

std::vector<Lease> Ledger::lease(Phase phase, Seat source, std::uint32_t count_max) {
  Book* book = find(phase);
  if (book == nullptr || fenced(source)) return {};
  return book->lease(source, count_max, attempts_);
}

std::uint32_t Ledger::leasable(Phase phase) const {
  const Book* book = find(phase);
  return book == nullptr ? 0 : book->leasable();
}

Verdict Ledger::report(Phase phase, StageId stage, std::uint32_t index, Seat seat, Attempt attempt,
                       PeerId through) {
  Book* book = find(phase);
  if (book == nullptr || fenced(seat)) {
    SWARMLINE_MARK("ledger.stale_report_refused");
    return Verdict::kRefused;
  }
  if (!book->knows(stage, index) || seat.stage != stage) return Verdict::kRefused;
  return book->report(stage, index, seat, attempt, through);
}

void Ledger::had_been_leased(Phase phase) {
  at(phase).had_been_leased();
}

Verdict Ledger::collect(Phase phase, StageId stage, std::uint32_t index, Seat seat) {
  Book& book = at(phase);
  if (!book.knows(stage, index) || seat.stage != stage || fenced(seat)) return Verdict::kRefused;
  return book.collect(stage, index, seat);
}

bool Ledger::claim(Phase phase, StageId stage, std::uint32_t index, Seat seat, Attempt attempt) {
  SWARMLINE_CHECK(attempt != Attempt(0));
  Book* book = find(phase);
  if (book == nullptr || fenced(seat)) {
    SWARMLINE_MARK("ledger.stale_claim_refused");
    return false;
  }
  if (!book->knows(stage, index) || seat.stage != stage) return false;
  return book->claim(stage, index, seat, attempt);
}

void Ledger::release_claim(Phase phase, StageId stage, std::uint32_t index, Seat seat,
                           Attempt attempt) {
  Book* book = find(phase);
  if (book == nullptr || !book->knows(stage, index)) return;
  book->release_claim(stage, index, seat, attempt);
}

void Ledger::expire(Phase phase, std::uint32_t index) {
  at(phase).expire(index);
}

std::optional<Seat> Ledger::source(Phase phase, std::uint32_t index) const {
  return at(phase).source(index);
}

std::vector<PhaseStage> Ledger::seat_lost(Seat seat) {
  std::vector<PhaseStage> touched;
  if (fenced(seat)) return touched;
  const auto known = fences_.find(seat.peer);
  std::optional<Incarnation> before;
  if (known != fences_.end()) before = known->second;
  SWARMLINE_CHECK(before || fences_.size() < kFencesMax);
  fences_[seat.peer] = seat.incarnation;
  for (const auto& [phase, book] : books_) {
    for (const StageId stage : book->seat_lost(seat, before)) touched.push_back({phase, stage});
  }
  return touched;
}

bool Ledger::forget(PeerId peer) {
  for (const auto& [phase, book] : books_)
    if (book->names(peer)) return false;
  fences_.erase(peer);
  return true;
}

void Ledger::release_owner(Phase phase, StageId stage, Seat seat) {
  at(phase).release_owner(stage, seat);
}

void Ledger::hand_over(Phase phase, StageId stage, Seat from, Seat to) {
  SWARMLINE_CHECK(!fenced(from) && !fenced(to));
  at(phase).hand_over(stage, from, to);
}

bool Ledger::stage_complete(Phase phase, StageId stage) const {
  return at(phase).stage_complete(stage);
}

bool Ledger::complete(Phase phase) const {
  return at(phase).complete();
}

std::uint32_t Ledger::owned(Phase phase, StageId stage) const {
  return at(phase).owned(stage);
}

std::optional<Seat> Ledger::owner(Phase phase, StageId stage, std::uint32_t index) const {
  return at(phase).owner(stage, index);
}

std::map<PeerId, std::vector<IndexRange>> Ledger::ownership(Phase phase, StageId stage) const {
  return at(phase).ownership(stage);
}

std::vector<Seat> Ledger::owners(Phase phase, StageId stage) const {
  return at(phase).owners(stage);
}

StageState Ledger::stage_state(Phase phase, StageId stage) const {
  return at(phase).state(stage);
}

void Ledger::begin_close(Phase phase, StageId stage) {
  SWARMLINE_CHECK_MSG(stage_complete(phase, stage), to_string(phase));
  at(phase).move(stage, StageState::kOpen, StageState::kClosing);
}

void Ledger::reopen(Phase phase, StageId stage) {
  SWARMLINE_MARK("ledger.closing_stage_reopened");
  at(phase).move(stage, StageState::kClosing, StageState::kOpen);
}

void Ledger::mark_reduced(Phase phase, StageId stage) {
  at(phase).move(stage, StageState::kClosing, StageState::kReduced);
}

void Ledger::reduction_lost(Phase phase, StageId stage) {
  at(phase).reduction_lost(stage, fences_);
}

void Ledger::commit(Phase phase) {
  const Book& book = at(phase);
  SWARMLINE_CHECK_MSG(phase.kind == PhaseKind::kEval ? book.complete() : book.all_reduced(),
                      to_string(phase) + " is not ready to commit");
  books_.erase(phase);
}

void Ledger::abandon(Phase phase) {
  SWARMLINE_MARK("ledger.phase_abandoned");
  at(phase);
  books_.erase(phase);
}

void Ledger::record_loss(Phase phase, std::uint32_t index, double loss_sum) {
  at(phase).record_loss(index, loss_sum);
}

double Ledger::loss_sum(Phase phase) const {
  return at(phase).loss_sum();
}

std::uint32_t Ledger::report_failure(Phase phase, std::uint32_t index, PeerId peer) {
  Book* book = find(phase);
  return book == nullptr ? 0 : book->report_failure(index, peer);
}

std::vector<std::uint32_t> Ledger::relying_on_tries(Phase phase) const {
  return at(phase).relying_on_tries();
}

void Ledger::check_invariants() const {
  SWARMLINE_CHECK(books_.size() <= kOpenPhasesMax);
  for (const auto& [phase, book] : books_) book->check_invariants(fences_);
}

}  // namespace swarmline
