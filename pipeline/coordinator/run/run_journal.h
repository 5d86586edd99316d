// What a coordinator writes down about its run, under typed names: who leads, where the era began,
// seats, commits, what was evaluated, how it ended.
//   What:      the only place that knows the keys of the journal's meta table. What is recorded
//              becomes durable later (journal_writer.h), in order; nobody hears of it before.
//   Ownership: the writer outlives it.
//   Thread:    control thread.
//   Errors:    reading: the journal's own; kRefused: another coordinator leads. A number that is
//              not one is kCorrupt. Writing has none: the writer tries until it can.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "pipeline/coordinator/run/journal_writer.h"
#include "pipeline/coordinator/run/segments.h"

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
  PeerId newest_peer;             // that was given a number, of those that are forgotten
  std::vector<SeatRecord> seats;  // of the others, oldest incarnations first
  RunSegments segments;           // none: an old journal does not say

  // Peers may still hold open steps of this era.
  bool is_training() const { return started == std::uint64_t{era.value} + 1 && !ended; }
  bool has_trained() const { return started > 0 && !ended; }  // in this era or an earlier one
};

class RunJournal {
 public:
  explicit RunJournal(JournalWriter& writer) : writer_(writer) {}

  // ---- Read by a reign that begins: while nothing is being written ----
  Result<std::uint64_t> term();  // 0: nobody has led the run yet
  Result<std::optional<std::string>> run_id();
  Result<std::optional<std::string>> address();  // where the coordinator before listened
  Result<JournaledRun> read();
  // Of whoever leads now; `done` comes later.
  void ask_term(std::function<void(Result<std::uint64_t>)> done);

  void record_term(Term term);
  void record_run_id(const std::string& run_id);
  Result<std::optional<std::string>> key();  // of the run; none: it began without one
  void record_key(const std::string& key);
  void record_address(const std::string& address);
  // Its beginning first: an era that is in the journal always has its beginning there.
  void record_era(Era era, std::uint64_t version, std::uint64_t updates,
                  const std::string& checkpoint);
  void record_started(Era era);
  void record_stopping();
  void record_ended();
  void record_evaluated(std::uint64_t version);
  void record_checkpoint(const std::string& path);
  void record_codecs(const std::string& codecs);
  void record_segment(const RunSegment& segment);
  void record_seat(const SeatRecord& seat) { writer_.give(seat); }
  // A new seat: those that the peer had before say nothing any more.
  void record_new_seat(const SeatRecord& seat);
  // It won't come again; `newest`: the highest number that a peer has.
  void forget_peer(PeerId peer, PeerId newest);
  void record_commit(const CommitRecord& commit) { writer_.give(commit); }
  // For people: nothing that is said waits for it.
  void record_event(const EventRecord& event) { writer_.note(event); }
  // Beside the commit that it counts.
  void record_totals(const std::string& totals);
  // What the coordinators before say of themselves: `totals` as recorded, none in an old journal;
  // the newest events, oldest first.
  Result<std::optional<std::string>> totals();
  Result<std::vector<EventRecord>> events(std::size_t count_max) {
    return writer_.at_once().events(count_max);
  }
  const JournalProgress& progress() const { return writer_.progress(); }

  static Result<bool> has_ended(Journal& journal);
  static Result<std::optional<std::string>> totals_in(JournalReader& journal);
  static Result<RunSegments> segments_in(JournalReader& journal);

 private:
  Result<std::uint64_t> number(const std::string& key);  // 0: not there
  void put(const std::string& key, const std::string& value) {
    writer_.give(MetaRecord{.key = key, .value = value});
  }

  JournalWriter& writer_;
};

}  // namespace swarmline
