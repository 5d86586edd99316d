// A journal on a disk, or in a store, that loses what was not synced when the power goes, takes its
// time, fails, and falls silent.
//   What:    what is written is there to be read at once, and survives power_cut() once it is
//            synced: when write() returns, as engine/store/journal.h promises, or `late` after
//            that, as of a journal that breaks the promise. How a coordinator's process reaches it:
//            SimJournalLink, in virtual time.
//   Thread:  that of the SimRuntime.
//   Errors:  kIo while it fails (SimJournalDisk::fails), or when it has been silent for
//            kEtcdDeadline.
//   Bounds:  keeps every write.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/callback_guard.h"
#include "engine/store/async_journal.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {

// What is wrong with it now.
struct SimJournalDisk {
  Duration time{};                   // that a write takes
  std::optional<std::string> fails;  // every write, with this sentence
  // Nothing is answered until it is over. Of two writes one was done all the same.
  bool silent = false;
  bool unheard = false;  // nobody hears that the write under way is done
};

class SimJournal final : public Journal {
 public:
  SimJournal(SimRuntime& runtime, Duration late = {});

  Result<void> write(std::span<const JournalRecord> records) override;
  Result<std::optional<std::string>> get_meta(const std::string& key) override;
  Result<std::vector<SeatRecord>> seats() override;
  Result<std::optional<CommitRecord>> last_commit() override;
  Result<std::vector<EventRecord>> events(std::size_t count_max) override;

  void power_cut();
  SimJournalDisk& disk() { return disk_; }
  // That it has, one that was written twice counted once.
  std::uint64_t commits() const { return commits_.size(); }

  // Who looks at what is written; one at a time, or nobody.
  struct Watcher {
    std::function<void(const SeatRecord&)> on_seat;
    std::function<void(const EventRecord&)> on_event;
  };
  void watch(Watcher watcher) { watcher_ = std::move(watcher); }
  std::uint64_t writes() const { return written_; }  // so far

 private:
  struct Write {
    std::vector<JournalRecord> records;
    Instant synced;
  };
  void tell(const JournalRecord& record);
  void count(const Write& write);

  SimRuntime& runtime_;
  Duration late_;
  SimJournalDisk disk_;
  std::vector<Write> writes_;
  std::set<std::pair<std::uint32_t, std::uint64_t>> commits_;  // era, version
  std::uint64_t written_ = 0;
  Watcher watcher_;
  std::vector<JournalRecord> unheard_;  // the newest such write: again it changes nothing
  std::unique_ptr<Journal> seen_;       // all of them
};

// One process's way to it. Without faults and with no time to take, a task is done inside run().
class SimJournalLink final : public AsyncJournal {
 public:
  // `led`: the journal as this process may write it. `cut_off`: nothing reaches it from here.
  SimJournalLink(SimRuntime& runtime, SimNodeId node, SimJournalDisk& disk, Journal& led,
                 std::function<bool()> cut_off = {})
      : runtime_(runtime), node_(node), disk_(disk), led_(led), cut_off_(std::move(cut_off)) {}

 protected:
  void begin(Task task, Done done) override;
  Journal& journal() override { return led_; }

 private:
  struct Waiting {
    Task task;
    Done done;
    Instant until{};  // no answer comes after that
    bool done_unheard = false;
  };
  void next();
  void end(Result<void> result);
  bool is_cut_off() const { return cut_off_ && cut_off_(); }

  SimRuntime& runtime_;
  SimNodeId node_;
  SimJournalDisk& disk_;
  Journal& led_;
  std::function<bool()> cut_off_;
  bool working_ = false;
  std::uint64_t silences_ = 0;
  std::deque<Waiting> waiting_;
  CallbackGuard guard_;
};

}  // namespace swarmline
