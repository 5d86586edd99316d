#include <algorithm>
#include <map>
#include <utility>

#include "engine/store/journal.h"

namespace swarmline {

namespace {

class MemoryJournal final : public Journal {
 public:
  Result<void> write(std::span<const JournalRecord> records) override {
    for (const JournalRecord& record : records)
      std::visit([this](const auto& one) { put(one); }, record);
    return {};
  }

  Result<std::optional<std::string>> get_meta(const std::string& key) override {
    const auto found = meta_.find(key);
    if (found == meta_.end()) return std::nullopt;
    return found->second;
  }

  Result<std::vector<SeatRecord>> seats() override {
    std::vector<SeatRecord> all;
    for (const auto& [key, seat] : seats_) all.push_back(seat);
    return all;
  }

  Result<std::optional<CommitRecord>> last_commit() override { return last_commit_; }

  Result<std::vector<EventRecord>> events(std::size_t count_max) override {
    const std::size_t count = std::min(count_max, events_.size());
    return std::vector<EventRecord>(events_.end() - static_cast<std::ptrdiff_t>(count),
                                    events_.end());
  }

 private:
  void put(const MetaRecord& meta) { meta_[meta.key] = meta.value; }
  void put(const SeatRecord& seat) { seats_[{seat.seat.peer, seat.seat.incarnation}] = seat; }
  void put(const CommitRecord& commit) { last_commit_ = commit; }
  void put(const EventRecord& event) { events_.push_back(event); }
  void put(const ForgottenSeats& seats) {
    std::erase_if(seats_, [&](const auto& entry) {
      return entry.first.first == seats.peer && (!seats.below || entry.first.second < *seats.below);
    });
  }

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
