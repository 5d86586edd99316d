#include "pipeline/stage/microbatches/contributions.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/microbatches/stage_compute.h"

namespace swarmline {

Contributions::Contributions(StageContext& context, Subtract subtract)
    : context_(context), subtract_(std::move(subtract)) {}

Contributions::Subtract Contributions::subtract_on_device(StageContext& context) {
  return [&context](const TaskPtr& task, std::function<void()> done) {
    StageJob job;
    job.phase = task->id.microbatch.phase;
    job.job.kind = JobKind::kBackward;
    job.job.body = subtract_body(context, task);
    job.done = [&context, done = std::move(done)](const JobReport& report) {
      if (!report.result) return context.fail(report.result.error());
      done();
    };
    context.queue.submit(std::move(job));
  };
}

void Contributions::open(const Phase& phase) {
  books_[phase];
}

bool Contributions::reserve(const AttemptId& id) {
  auto book = books_.find(id.microbatch.phase);
  if (book == books_.end() || book->second.frozen || book->second.gives) return false;
  return book->second.cells.emplace(id.microbatch.index, Cell{}).second;
}

void Contributions::unreserve(const AttemptId& id) {
  auto book = books_.find(id.microbatch.phase);
  if (book == books_.end()) return;
  auto cell = book->second.cells.find(id.microbatch.index);
  if (cell != book->second.cells.end() && cell->second.state == CellState::kReserved)
    book->second.cells.erase(cell);
}

void Contributions::added(const TaskPtr& task) {
  auto book = books_.find(task->id.microbatch.phase);
  SWARMLINE_CHECK(book != books_.end());
  auto cell = book->second.cells.find(task->id.microbatch.index);
  SWARMLINE_CHECK(cell != book->second.cells.end() && cell->second.state == CellState::kReserved);
  cell->second = {CellState::kAdded, task->id.attempt, task->loss_sum};
  book->second.unacknowledged[task->id.microbatch.index] = task;
  report(task);
}

void Contributions::evaluated(const TaskPtr& task) {
  report(task);
}

void Contributions::report(const TaskPtr& task) {
  const Phase phase = task->id.microbatch.phase;
  wire::Report& report = pending_[phase];
  wire::Contribution* contribution = report.add_contributions();
  contribution->set_index(task->id.microbatch.index);
  contribution->set_attempt(task->id.attempt.value);
  contribution->set_loss_sum(task->loss_sum);
  contribution->set_through(task->through.value);
  if (std::exchange(flush_armed_, true)) return;
  context_.runtime.call_after(knobs().report_delay, guard_.wrap([this] { flush(); }));
}

void Contributions::flush() {
  flush_armed_ = false;
  for (auto& [phase, report] : pending_) {
    *report.mutable_seat() = to_wire(context_.self);
    *report.mutable_phase() = to_wire(phase);
    context_.notify_coordinator(make_frame(MessageKind::kReport, report));
  }
  pending_.clear();
}

void Contributions::on_ack(const wire::ReportAck& ack) {
  const Phase phase = from_wire(ack.phase());
  auto book = books_.find(phase);
  if (book == books_.end()) return;
  for (std::uint32_t index : ack.accepted()) book->second.unacknowledged.erase(index);
  for (std::uint32_t index : ack.refused()) take_back(phase, index);
}

void Contributions::take_back(const Phase& phase, std::uint32_t index) {
  Book& book = books_.at(phase);
  auto task = book.unacknowledged.extract(index);
  if (task.empty()) return;  // already taken back
  log(LogLevel::kInfo, "{}: taking back {}", to_string(context_.self),
      to_string(MicrobatchId{phase, index}));
  SWARMLINE_MARK("contributions.taken_back");
  ++book.subtracting;
  book.cells.at(index).state = CellState::kLeaving;
  subtract_(task.mapped(), guard_.wrap([this, phase, index] {
    auto open = books_.find(phase);
    if (open == books_.end()) return;
    open->second.cells.erase(index);
    if (--open->second.subtracting == 0 && open->second.on_quiet)
      std::exchange(open->second.on_quiet, nullptr)();
  }));
}

void Contributions::settle(const Phase& phase, const std::set<std::uint32_t>& owned,
                           std::function<void(Result<std::vector<std::uint32_t>>)> done) {
  Book& book = books_[phase];
  book.frozen = true;
  book.gives = false;
  std::vector<std::uint32_t> extra;
  unreserve_all(phase);
  drop_cells(book, CellState::kExpected);
  for (const auto& [index, cell] : book.cells)
    if (!owned.contains(index) && book.unacknowledged.contains(index)) extra.push_back(index);
  for (std::uint32_t index : extra) take_back(phase, index);
  auto finish = [this, phase, owned, done = std::move(done)] {
    const Book& settled = books_.at(phase);
    std::vector<std::uint32_t> missing;
    for (std::uint32_t index : owned)
      if (!settled.cells.contains(index)) missing.push_back(index);
    for (const auto& [index, cell] : settled.cells)
      if (!owned.contains(index))
        return done(fail(ErrorCode::kIncompatible,
                         fmt::format("{} was accepted from this peer and is another's now",
                                     to_string(MicrobatchId{phase, index}))));
    done(std::move(missing));
  };
  if (book.subtracting == 0) return finish();
  book.on_quiet = std::move(finish);
}

void Contributions::unreserve_all(const Phase& phase) {
  if (auto book = books_.find(phase); book != books_.end())
    drop_cells(book->second, CellState::kReserved);
}

void Contributions::drop_cells(Book& book, CellState state) {
  std::erase_if(book.cells, [state](const auto& cell) { return cell.second.state == state; });
}

void Contributions::reopen(const Phase& phase) {
  if (auto book = books_.find(phase); book != books_.end()) book->second.frozen = false;
}

// ---- Sums that change hands ---------------------------------------------------------------------

bool Contributions::may_give(const Phase& phase) const {
  const auto book = books_.find(phase);
  return book != books_.end() && !book->second.frozen && !book->second.cells.empty() &&
         book->second.unacknowledged.empty() &&
         std::ranges::all_of(book->second.cells, [](const auto& cell) {
           return cell.second.state == CellState::kAdded;
         });
}

void Contributions::give(const Phase& phase) {
  books_.at(phase).gives = true;
}

void Contributions::keep(const Phase& phase) {
  if (auto book = books_.find(phase); book != books_.end()) book->second.gives = false;
}

bool Contributions::gives(const Phase& phase) const {
  const auto book = books_.find(phase);
  return book != books_.end() && book->second.gives;
}

bool Contributions::expect(const Phase& phase, const List& others) {
  const auto book = books_.find(phase);
  if (book == books_.end() || book->second.frozen || book->second.gives) return false;
  for (const wire::Contribution& other : others)
    if (book->second.cells.contains(other.index())) return false;
  for (const wire::Contribution& other : others)
    book->second.cells[other.index()] = {CellState::kExpected, Attempt{other.attempt()},
                                         other.loss_sum()};
  return true;
}

void Contributions::expect_no_more(const Phase& phase, const List& others) {
  const auto book = books_.find(phase);
  if (book == books_.end()) return;
  for (const wire::Contribution& other : others)
    if (const auto cell = book->second.cells.find(other.index());
        cell != book->second.cells.end() && cell->second.state == CellState::kExpected)
      book->second.cells.erase(cell);
}

void Contributions::adopt(const Phase& phase, const List& others) {
  Book& book = books_.at(phase);
  for (const wire::Contribution& other : others) {
    Cell& cell = book.cells.at(other.index());
    SWARMLINE_CHECK(cell.state == CellState::kExpected);
    cell.state = CellState::kAdded;
  }
}

void Contributions::forget(const Phase& phase) {
  if (auto book = books_.find(phase); book != books_.end()) book->second = Book{};
  pending_.erase(phase);
}

void Contributions::retire(const Phase& phase) {
  books_.erase(phase);
  pending_.erase(phase);
}

std::uint32_t Contributions::count(const Phase& phase) const {
  auto book = books_.find(phase);
  return book == books_.end() ? 0 : static_cast<std::uint32_t>(book->second.cells.size());
}

void Contributions::list(wire::PhaseHoldings& holdings) const {
  const auto book = books_.find(from_wire(holdings.phase()));
  if (book == books_.end()) return;
  for (const auto& [index, cell] : book->second.cells) {
    if (cell.state != CellState::kAdded) continue;
    const bool known = !book->second.gives && !book->second.unacknowledged.contains(index);
    wire::Contribution* out = known ? holdings.add_acknowledged() : holdings.add_reported();
    out->set_index(index);
    out->set_attempt(cell.attempt.value);
    out->set_loss_sum(cell.loss_sum);
  }
}

void Contributions::list_unacknowledged(std::set<MicrobatchId>& all) const {
  for (const auto& [phase, book] : books_) {
    for (const auto& [index, task] : book.unacknowledged) all.insert({phase, index});
    for (const auto& [index, held] : book.cells)
      if (held.state == CellState::kReserved) all.insert({phase, index});  // its device has it
  }
}

std::size_t Contributions::size() const {
  std::size_t entries = 0;
  for (const auto& [phase, book] : books_) entries += book.cells.size();
  return entries;
}

void Contributions::check_invariants() const {
  for (const auto& [phase, book] : books_) {
    int leaving = 0;
    for (const auto& [index, cell] : book.cells) {
      leaving += cell.state == CellState::kLeaving ? 1 : 0;
      SWARMLINE_CHECK(!book.frozen ||
                      (cell.state != CellState::kReserved && cell.state != CellState::kExpected));
      SWARMLINE_CHECK(!book.unacknowledged.contains(index) || cell.state == CellState::kAdded);
    }
    SWARMLINE_CHECK(leaving == book.subtracting);
    for (const auto& [index, task] : book.unacknowledged)
      SWARMLINE_CHECK(book.cells.contains(index));
  }
}

}  // namespace swarmline
