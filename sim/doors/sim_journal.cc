#include "sim/doors/sim_journal.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/store/control_store.h"

namespace swarmline {

namespace {
// A silent store is asked so often whether it answers again.
constexpr Duration kSilencePeriod = std::chrono::milliseconds(10);
}  // namespace

SimJournal::SimJournal(SimRuntime& runtime, Duration late)
    : runtime_(runtime), late_(late), seen_(make_memory_journal()) {}

Result<void> SimJournal::write(std::span<const JournalRecord> records) {
  if (!unheard_.empty() && records.size() >= unheard_.size() &&
      std::equal(unheard_.begin(), unheard_.end(), records.begin()))
    records = records.subspan(unheard_.size());
  unheard_.clear();
  if (disk_.unheard) unheard_.assign(records.begin(), records.end());
  SWARMLINE_TRY(seen_->write(records));
  written_ += records.size();
  for (const JournalRecord& record : records) tell(record);
  writes_.push_back({{records.begin(), records.end()}, runtime_.now() + late_});
  count(writes_.back());
  return {};
}

void SimJournal::tell(const JournalRecord& record) {
  if (const auto* seat = std::get_if<SeatRecord>(&record); seat != nullptr && watcher_.on_seat)
    watcher_.on_seat(*seat);
  if (const auto* event = std::get_if<EventRecord>(&record); event != nullptr && watcher_.on_event)
    watcher_.on_event(*event);
}

void SimJournal::power_cut() {
  std::erase_if(writes_, [now = runtime_.now()](const Write& write) { return write.synced > now; });
  seen_ = make_memory_journal();
  commits_.clear();
  for (const Write& write : writes_) {
    SWARMLINE_CHECK(seen_->write(write.records).has_value());
    count(write);
  }
}

void SimJournal::count(const Write& write) {
  for (const JournalRecord& record : write.records)
    if (const auto* commit = std::get_if<CommitRecord>(&record))
      commits_.insert({commit->era, commit->version});
}

Result<std::optional<std::string>> SimJournal::get_meta(const std::string& key) {
  return seen_->get_meta(key);
}
Result<std::vector<SeatRecord>> SimJournal::seats() {
  return seen_->seats();
}
Result<std::optional<CommitRecord>> SimJournal::last_commit() {
  return seen_->last_commit();
}
Result<std::vector<EventRecord>> SimJournal::events(std::size_t count_max) {
  return seen_->events(count_max);
}

// ---- The way to it ------------------------------------------------------------------------------

void SimJournalLink::begin(Task task, Done done) {
  waiting_.push_back({.task = std::move(task), .done = std::move(done)});
  if (!working_) next();
}

void SimJournalLink::next() {
  if (waiting_.empty()) return;
  working_ = true;
  Waiting& first = waiting_.front();
  if (disk_.silent || is_cut_off()) {
    if (first.until == Instant{}) {
      first.until = runtime_.now() + kEtcdDeadline;
      first.done_unheard = ++silences_ % 2 == 0 && !is_cut_off();
      disk_.unheard = first.done_unheard;
      if (first.done_unheard) static_cast<void>(first.task(led_));
      disk_.unheard = false;
    }
    if (runtime_.now() >= first.until) return end(fail(ErrorCode::kIo, "no answer in time"));
    runtime_.schedule(node_, runtime_.now() + kSilencePeriod, guard_.wrap([this] { next(); }));
    return;
  }
  if (first.done_unheard) {  // the answer comes after all
    runtime_.schedule(node_, runtime_.now(), guard_.wrap([this] { end({}); }));
    return;
  }
  if (disk_.fails) {  // said later, as every failure is
    runtime_.schedule(node_, runtime_.now(),
                      guard_.wrap([this, why = *disk_.fails] { end(fail(ErrorCode::kIo, why)); }));
    return;
  }
  if (disk_.time <= Duration{}) return end(first.task(led_));
  // Whoever is killed between the two has written it, and said nothing.
  runtime_.schedule(node_, runtime_.now() + disk_.time / 2, guard_.wrap([this] {
    Result<void> result = waiting_.front().task(led_);
    runtime_.schedule(node_, runtime_.now() + disk_.time / 2,
                      guard_.wrap([this, result = std::move(result)] { end(result); }));
  }));
}

void SimJournalLink::end(Result<void> result) {
  const Done done = std::move(waiting_.front().done);
  waiting_.pop_front();
  working_ = false;
  const auto alive = guard_.watch();
  done(std::move(result));
  if (!alive.expired() && !working_) next();
}

}  // namespace swarmline
