#include "sim/doors/sim_journal.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace swarmline {

SimJournal::SimJournal(SimRuntime& runtime, Duration late)
    : runtime_(runtime), late_(late), seen_(make_memory_journal()) {}

Result<void> SimJournal::write(std::function<Result<void>(Journal&)> what) {
  SWARMLINE_TRY(what(*seen_));
  ++written_;
  writes_.push_back({std::move(what), runtime_.now() + late_});
  return {};
}

void SimJournal::power_cut() {
  std::erase_if(writes_, [now = runtime_.now()](const Write& write) { return write.synced > now; });
  seen_ = make_memory_journal();
  for (const Write& write : writes_) SWARMLINE_CHECK(write.what(*seen_).has_value());
}

Result<void> SimJournal::put_meta(const std::string& key, const std::string& value) {
  return write([=](Journal& journal) { return journal.put_meta(key, value); });
}
Result<std::optional<std::string>> SimJournal::get_meta(const std::string& key) {
  return seen_->get_meta(key);
}
Result<void> SimJournal::record_seat(const SeatRecord& seat) {
  if (watcher_.on_seat) watcher_.on_seat(seat);
  return write([=](Journal& journal) { return journal.record_seat(seat); });
}
Result<std::vector<SeatRecord>> SimJournal::seats() {
  return seen_->seats();
}
Result<void> SimJournal::record_commit(const CommitRecord& commit) {
  return write([=](Journal& journal) { return journal.record_commit(commit); });
}
Result<std::optional<CommitRecord>> SimJournal::last_commit() {
  return seen_->last_commit();
}
Result<void> SimJournal::record_event(double wall_seconds, const std::string& kind,
                                      const std::string& detail) {
  if (watcher_.on_event) watcher_.on_event(kind, detail);
  return write([=](Journal& journal) { return journal.record_event(wall_seconds, kind, detail); });
}
Result<std::vector<EventRecord>> SimJournal::events(std::size_t count_max) {
  return seen_->events(count_max);
}

}  // namespace swarmline
