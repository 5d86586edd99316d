// What happens in a run, for people and programs: each event goes to the process's log, the journal
// and log.jsonl.
//   What:      a line of log.jsonl is written once what was decided before it is durable, as
//              messages are sent; the process's log has an event at once.
//   Ownership: runtime, journal and the line's taker outlive it. Thread: control thread.
//   Errors:    of a journal that can't be written for long some events have no row.
//   Bounds:    lines wait as long as the messages beside them; kNewestKept events are kept.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/log.h"
#include "engine/runtime/runtime.h"
#include "engine/store/journal.h"
#include "pipeline/coordinator/run/run_journal.h"

namespace swarmline {

class EventLog {
 public:
  static constexpr std::size_t kNewestKept = 16;  // for who asks how the run is doing

  using TakeLine = std::function<void(const std::string&)>;

  // `take_line`: one JSON object a line; may be empty.
  EventLog(Runtime& runtime, RunJournal& journal, TakeLine take_line);

  void event(const std::string& kind, const std::string& detail, LogLevel level = LogLevel::kInfo);
  // In log.jsonl, too: what can't wait for the journal, because it is about it.
  void event_at_once(const std::string& kind, const std::string& detail, LogLevel level);
  bool takes_lines() const { return take_line_ != nullptr; }
  void line(const std::string& json);  // of a step or an evaluation
  void flush();                        // as far as the journal is durable
  const std::deque<EventRecord>& newest() const { return newest_; }  // oldest first
  double wall_seconds() const { return runtime_.wall_seconds(); }

 private:
  struct Line {
    std::string json;
    std::uint64_t after = 0;  // so many records of the journal are durable
  };
  std::string recorded(const std::string& kind, const std::string& detail, LogLevel level);

  Runtime& runtime_;
  RunJournal& journal_;
  TakeLine take_line_;
  std::deque<Line> lines_;
  std::deque<EventRecord> newest_;
};

}  // namespace swarmline
