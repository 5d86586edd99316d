// The fourth door, control half: what the coordinator must not forget. Durable before it returns;
// async_journal.h is how a coordinator writes it without waiting.
//   Backends: SqliteJournal (journal.sqlite in the run folder, WAL, synchronous = FULL),
//             MemoryJournal (simulator, tests).
//   Thread:   one at a time.
//   Errors:   kIo: it can't be written now (full, busy, an I/O error, no answer), with the sentence
//             of SQLite or etcd: writing the same again later may do. kRefused: another leads.
//             kIncompatible when the file's format is newer than kJournalFormat or the file is
//             another program's database.
//   Bounds:   kJournalBatchMax records a write.
//   Tables of the SQLite form, for people (docs/formats/journal.md): meta(key, value),
//   seats(peer, incarnation, stage, address, state, key, reach, name), commits(number, step,
//   version, loss, tokens, gradient_norm, clip_scale, learning_rate, skipped, group_digests,
//   wall_seconds, era, updates), events(number, wall_seconds, kind, detail, level).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/log_level.h"
#include "base/result.h"

namespace swarmline {

inline constexpr int kJournalFormat = 6;
inline constexpr std::size_t kJournalBatchMax = 48;  // etcd takes 128 puts and removals at once

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

  bool operator==(const CommitRecord&) const = default;
};

struct SeatRecord {
  Seat seat;
  std::string address;
  std::string state;  // "active", "joining", "left", "fenced"
  std::string key;    // hash of the key that it was given to, in hex; empty: its link had none
  std::string reach;  // "yes", "no", "elsewhere": whether it takes connections; empty: unknown
  std::string name;   // the peer's; empty: unknown

  bool operator==(const SeatRecord&) const = default;
};

struct EventRecord {
  double wall_seconds = 0;
  std::string kind;
  std::string detail;
  LogLevel level = LogLevel::kInfo;

  bool operator==(const EventRecord&) const = default;
};

struct MetaRecord {
  std::string key;
  std::string value;

  bool operator==(const MetaRecord&) const = default;
};

// Removes what is recorded of a peer's seats below an incarnation; without one, of all its seats.
struct ForgottenSeats {
  PeerId peer;
  std::optional<Incarnation> below;

  bool operator==(const ForgottenSeats&) const = default;
};
using JournalRecord =
    std::variant<MetaRecord, SeatRecord, CommitRecord, EventRecord, ForgottenSeats>;

class JournalReader {
 public:
  virtual ~JournalReader() = default;
  virtual Result<std::optional<std::string>> get_meta(const std::string& key) = 0;
  // Ordered by (peer, incarnation).
  virtual Result<std::vector<SeatRecord>> seats() = 0;
  // The commit recorded last.
  virtual Result<std::optional<CommitRecord>> last_commit() = 0;
  // The newest `count_max` events, oldest first.
  virtual Result<std::vector<EventRecord>> events(std::size_t count_max) = 0;
};

class Journal : public JournalReader {
 public:
  // In order, in one transaction: with an error nothing of it is there, or, where no answer came,
  // all of it may be. The same records again change nothing then.
  virtual Result<void> write(std::span<const JournalRecord> records) = 0;

  // ---- One record each ----
  Result<void> put_meta(const std::string& key, const std::string& value) {
    return write_one(MetaRecord{.key = key, .value = value});
  }
  // One row per (peer, incarnation): recording it again replaces stage, address and state.
  Result<void> record_seat(const SeatRecord& seat) { return write_one(seat); }
  // Appends: after a return to a checkpoint the same step is recorded once more.
  Result<void> record_commit(const CommitRecord& commit) { return write_one(commit); }
  Result<void> forget_seats(const ForgottenSeats& seats) { return write_one(seats); }
  Result<void> record_event(double wall_seconds, const std::string& kind,
                            const std::string& detail) {
    return write_one(EventRecord{.wall_seconds = wall_seconds, .kind = kind, .detail = detail});
  }

 private:
  Result<void> write_one(const JournalRecord& record) { return write({&record, 1}); }
};

// Opens or creates the database at `path`.
Result<std::unique_ptr<Journal>> open_sqlite_journal(const std::string& path);
std::unique_ptr<Journal> make_memory_journal();

}  // namespace swarmline
