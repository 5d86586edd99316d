// Records on their way into the journal: given in order, durable later.
//   What:      what is given during an event goes in one transaction, begun by flush(); what is
//              given while one is under way goes in the next. A transaction that fails is tried
//              again, with what came after it, until it is there: nobody hears of what is not.
//   Ownership: runtime and journal outlive it. What is still waiting when it goes was never said.
//   Thread:    control thread. `changed` follows whenever more is durable, or the journal fails; it
//              may come inside flush().
//   Errors:    refused(): another coordinator leads; nothing is written any more. Any other error
//              is trouble(): it pauses, twice as long each time (knobs: journal_retry_min, _max).
//   Bounds:    a transaction has kJournalBatchMax records; kNotesMax notes wait, further ones are
//              dropped. Records are as many as a coordinator decides without being heard.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/runtime/runtime.h"
#include "engine/store/async_journal.h"
#include "pipeline/coordinator/run/journal_progress.h"

namespace swarmline {

class JournalWriter {
 public:
  static constexpr std::size_t kNotesMax = 1000;

  JournalWriter(Runtime& runtime, AsyncJournal& journal, std::function<void()> changed);

  void give(JournalRecord record);
  void note(JournalRecord record);  // what nothing that is said waits for
  void flush();
  void opened() { opening_ = progress_.given; }  // given so far: how a reign began

  const JournalProgress& progress() const { return progress_; }
  AsyncJournal& journal() { return journal_; }
  Journal& at_once() { return journal_.at_once(); }

  const std::optional<Error>& refused() const { return refused_; }
  // Since when it can't be written, and why; from the first failure to the next success.
  struct Trouble {
    Instant since;
    std::string why;
    std::uint64_t tries = 1;
  };
  const std::optional<Trouble>& trouble() const { return trouble_; }
  // What was decided has been waiting for so long to be said.
  Duration wait(Instant now) const;
  // Decisions that others wait for with a deadline are better not begun now: the journal is slow
  // (knob journal_late), in trouble, or does not have the reign's beginning yet.
  bool is_late(Instant now) const;

  // What happened since it was asked last: it began to fail, or is well again after so long.
  struct News {
    std::optional<std::string> fails;
    std::optional<Duration> well_after;
  };
  News take_news() { return std::exchange(news_, {}); }

 private:
  struct Entry {
    JournalRecord record;
    bool counts = true;
    Instant given;
  };
  void written(std::size_t records, const Result<void>& result);
  void failed(const Error& error);

  Runtime& runtime_;
  AsyncJournal& journal_;
  std::function<void()> changed_;
  std::deque<Entry> entries_;
  std::size_t notes_ = 0;  // of the entries
  JournalProgress progress_;
  std::uint64_t opening_ = 0;
  bool writing_ = false;
  bool pausing_ = false;
  Duration pause_{};
  std::optional<Error> refused_;
  std::optional<Trouble> trouble_;
  News news_;
  CallbackGuard guard_;
};

}  // namespace swarmline
