#include <algorithm>
#include <map>
#include <utility>

#include "engine/store/journal.h"

namespace swarmline {

namespace {

class MemoryJournal final : public Journal {
 public:
  Result<void> put_meta(const std::string& key, const std::string& value) override {
    meta_[key] = value;
    return {};
  }

  Result<std::optional<std::string>> get_meta(const std::string& key) override {
    const auto found = meta_.find(key);
    if (found == meta_.end()) return std::nullopt;
    return found->second;
  }

  Result<void> record_seat(const SeatRecord& seat) override {
    seats_[{seat.seat.peer, seat.seat.incarnation}] = seat;
    return {};
  }

  Result<std::vector<SeatRecord>> seats() override {
    std::vector<SeatRecord> all;
    for (const auto& [key, seat] : seats_) all.push_back(seat);
    return all;
  }

  Result<void> record_commit(const CommitRecord& commit) override {
    last_commit_ = commit;
    return {};
  }

  Result<std::optional<CommitRecord>> last_commit() override { return last_commit_; }

  Result<void> record_event(double wall_seconds, const std::string& kind,
                            const std::string& detail) override {
    events_.push_back(EventRecord{.wall_seconds = wall_seconds, .kind = kind, .detail = detail});
    return {};
  }

  Result<std::vector<EventRecord>> events(std::size_t count_max) override {
    const std::size_t count = std::min(count_max, events_.size());
    return std::vector<EventRecord>(events_.end() - static_cast<std::ptrdiff_t>(count),
                                    events_.end());
  }

 private:
  std::map<std::string, std::string> meta_;
  std::map<std::pair<PeerId, Incarnation>, SeatRecord> seats_;
  std::optional<CommitRecord> last_commit_;
  std::vector<EventRecord> events_;
};

}  // namespace

std::unique_ptr<Journal> make_memory_journal() {
  return std::make_unique<MemoryJournal>();
}

}  // namespace swarmline
