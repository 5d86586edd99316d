// What a coordinator writes down about its run, under typed names: who leads, where the era began,
// seats, commits, what was evaluated, how it ended.
//   What:      the only place that knows the keys of the journal's meta table.
//   Ownership: the journal outlives it.
//   Thread:    control thread. A call that returns without an error is durable.
//   Errors:    the journal's own; kRefused: another coordinator leads. A number that is not one is
//              kCorrupt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/store/journal.h"
#include "pipeline/coordinator/run/journal_progress.h"

namespace swarmline {

// What the journal of an interrupted run says.
struct JournaledRun {
  Era era;
  std::uint64_t era_version = 0;      // that the era began with
  std::uint64_t era_updates = 0;      // optimizer updates before it
  bool era_updates_known = false;     // an old journal does not say
  std::uint64_t evaluated = 0;        // the newest version whose evaluation is over
  std::uint64_t started = 0;          // 1 + the era in which training began last; 0: never
  bool ended = false;                 // it was over, or left by its user
  bool stopping = false;              // its user wants it to end after the open step
  std::string checkpoint;             // the newest one; empty: none
  std::optional<std::string> codecs;  // of its boundaries, as chosen last
  std::optional<CommitRecord> last_commit;
  std::vector<SeatRecord> seats;  // oldest incarnations first

  // Peers may still hold open steps of this era.
  bool is_training() const { return started == std::uint64_t{era.value} + 1 && !ended; }
  bool has_trained() const { return started > 0 && !ended; }  // in this era or an earlier one
};

class RunJournal {
 public:
  explicit RunJournal(Journal& journal) : journal_(journal) {}

  Result<std::uint64_t> term();  // 0: nobody has led the run yet
  Result<void> record_term(Term term);
  Result<std::optional<std::string>> run_id();
  Result<void> record_run_id(const std::string& run_id);
  Result<std::optional<std::string>> address();  // where the coordinator before listened
  Result<void> record_address(const std::string& address);
  Result<JournaledRun> read();

  // Its beginning first: an era that is in the journal always has its beginning there.
  Result<void> record_era(Era era, std::uint64_t version, std::uint64_t updates,
                          const std::string& checkpoint);
  Result<void> record_started(Era era);
  Result<void> record_stopping();
  Result<void> record_ended();
  Result<void> record_evaluated(std::uint64_t version);
  Result<void> record_checkpoint(const std::string& path);
  Result<void> record_codecs(const std::string& codecs);
  Result<void> record_seat(const SeatRecord& seat) { return counted(journal_.record_seat(seat)); }
  Result<void> record_commit(const CommitRecord& commit) {
    return counted(journal_.record_commit(commit));
  }
  // For people: nothing that is said waits for it.
  Result<void> record_event(double wall_seconds, const std::string& kind,
                            const std::string& detail) {
    return journal_.record_event(wall_seconds, kind, detail);
  }
  const JournalProgress& progress() const { return progress_; }

  static Result<bool> has_ended(Journal& journal);

 private:
  Result<std::uint64_t> number(const std::string& key);  // 0: not there
  Result<void> put(const std::string& key, const std::string& value) {
    return counted(journal_.put_meta(key, value));
  }
  // A journal's call that returns without an error is durable.
  Result<void> counted(Result<void> written) {
    if (written) progress_.durable = ++progress_.given;
    return written;
  }

  Journal& journal_;
  JournalProgress progress_;
};

}  // namespace swarmline
