// What happens in a run, for people and programs: each event goes to the process's log, the journal
// and log.jsonl.
//   Ownership: runtime, journal and the line's taker outlive it. Thread: control thread.
//   Errors:    a journal that can't be written costs the event's row, and is said in the log.
#pragma once

#include <functional>
#include <string>

#include "base/log.h"
#include "engine/runtime/runtime.h"
#include "pipeline/coordinator/run/run_journal.h"

namespace swarmline {

class EventLog {
 public:
  using TakeLine = std::function<void(const std::string&)>;

  // `take_line`: one JSON object a line; may be empty.
  EventLog(Runtime& runtime, RunJournal& journal, TakeLine take_line);

  void event(const std::string& kind, const std::string& detail, LogLevel level = LogLevel::kInfo);
  bool takes_lines() const { return take_line_ != nullptr; }
  void line(const std::string& json) { take_line_(json); }  // of a step or an evaluation
  double wall_seconds() const { return runtime_.wall_seconds(); }

 private:
  Runtime& runtime_;
  RunJournal& journal_;
  TakeLine take_line_;
};

}  // namespace swarmline
