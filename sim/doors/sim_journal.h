// A journal on a disk that loses what was not synced when the power goes.
//   What:    what is put is there to be read at once, and survives power_cut() once it is synced:
//            when put_*() or record_*() returns, as engine/store/journal.h promises, or `late`
//            after that, as of a journal that breaks the promise.
//   Thread:  that of the SimRuntime.
//   Bounds:  keeps every write.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/store/journal.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {

class SimJournal final : public Journal {
 public:
  SimJournal(SimRuntime& runtime, Duration late = {});

  Result<void> put_meta(const std::string& key, const std::string& value) override;
  Result<std::optional<std::string>> get_meta(const std::string& key) override;
  Result<void> record_seat(const SeatRecord& seat) override;
  Result<std::vector<SeatRecord>> seats() override;
  Result<void> record_commit(const CommitRecord& commit) override;
  Result<std::optional<CommitRecord>> last_commit() override;
  Result<void> record_event(double wall_seconds, const std::string& kind,
                            const std::string& detail) override;
  Result<std::vector<EventRecord>> events(std::size_t count_max) override;

  void power_cut();

  // Who looks at what is written; one at a time, or nobody.
  struct Watcher {
    std::function<void(const SeatRecord&)> on_seat;
    std::function<void(const std::string& kind, const std::string& detail)> on_event;
  };
  void watch(Watcher watcher) { watcher_ = std::move(watcher); }
  std::uint64_t writes() const { return written_; }  // so far

 private:
  struct Write {
    std::function<Result<void>(Journal&)> what;
    Instant synced;
  };
  Result<void> write(std::function<Result<void>(Journal&)> what);

  SimRuntime& runtime_;
  Duration late_;
  std::vector<Write> writes_;
  std::uint64_t written_ = 0;
  Watcher watcher_;
  std::unique_ptr<Journal> seen_;  // all of them
};

}  // namespace swarmline
