// The fourth door, control half: what the coordinator must not forget. Durable before it returns.
//   Backends: SqliteJournal (journal.sqlite in the run folder, WAL, synchronous = FULL),
//             MemoryJournal (simulator, tests).
//   Thread:   the control thread of the coordinator.
//   Errors:   kIo with SQLite's sentence; kIncompatible when the file's format is newer than
//             kJournalFormat or the file is another program's database.
//   Tables of the SQLite form, for people (docs/formats/journal.md): meta(key, value),
//   seats(peer, incarnation, stage, address, state), commits(number, step, version, loss, tokens,
//   gradient_norm, clip_scale, learning_rate, skipped, group_digests, wall_seconds, era, updates),
//   events(number, wall_seconds, kind, detail).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace swarmline {

inline constexpr int kJournalFormat = 2;

struct CommitRecord {
  std::uint64_t step = 0;
  std::uint64_t version = 0;  // the version this commit produces
  double loss = 0;            // nats per token, mean over the batch
  std::uint64_t tokens = 0;
  double gradient_norm = 0;  // global, before clipping
  double clip_scale = 1;
  double learning_rate = 0;
  bool skipped = false;                      // non-finite norm and on_nonfinite = "skip"
  std::vector<std::uint64_t> group_digests;  // of the reduced gradient bytes, one per group
  double wall_seconds = 0;                   // since 1970, when it was recorded
  std::uint32_t era = 0;
  std::uint64_t updates = 0;  // commits up to this one that were not skipped
};

struct SeatRecord {
  Seat seat;
  std::string address;
  std::string state;  // "active", "joining", "left", "fenced"
};

struct EventRecord {
  double wall_seconds = 0;
  std::string kind;
  std::string detail;
};

class Journal {
 public:
  virtual ~Journal() = default;
  virtual Result<void> put_meta(const std::string& key, const std::string& value) = 0;
  virtual Result<std::optional<std::string>> get_meta(const std::string& key) = 0;
  // One row per (peer, incarnation): recording it again replaces stage, address and state.
  virtual Result<void> record_seat(const SeatRecord& seat) = 0;
  // Ordered by (peer, incarnation).
  virtual Result<std::vector<SeatRecord>> seats() = 0;
  // Appends: after a return to a checkpoint the same step is recorded once more.
  virtual Result<void> record_commit(const CommitRecord& commit) = 0;
  // The commit recorded last.
  virtual Result<std::optional<CommitRecord>> last_commit() = 0;
  virtual Result<void> record_event(double wall_seconds, const std::string& kind,
                                    const std::string& detail) = 0;
  // The newest `count_max` events, oldest first.
  virtual Result<std::vector<EventRecord>> events(std::size_t count_max) = 0;
};

// Opens or creates the database at `path`.
Result<std::unique_ptr<Journal>> open_sqlite_journal(const std::string& path);
std::unique_ptr<Journal> make_memory_journal();

}  // namespace swarmline
