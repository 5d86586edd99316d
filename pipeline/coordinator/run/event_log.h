// What happens in a run, for people and programs: each event goes to the process's log, the journal
// and log.jsonl.
//   What:      peers are called by their names, with their numbers (called()), in all of them;
//              a line of log.jsonl is written once what was decided before it is durable, as
//              messages are sent; the process's log has an event at once.
//   Ownership: runtime, journal and the line's taker outlive it. Thread: control thread.
//   Errors:    of a journal that can't be written for long some events have no row.
//   Bounds:    lines wait as long as the messages beside them; kNewestKept events are kept, among
//              them those of the coordinators before (restore()).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/runtime/runtime.h"
#include "engine/store/journal.h"
#include "engine/store/log_lines.h"
#include "pipeline/coordinator/run/run_journal.h"

namespace swarmline {

class EventLog {
 public:
  static constexpr std::size_t kNewestKept = 16;  // for who asks how the run is doing

  using TakeLine = std::function<void(const std::string&)>;
  using TakePoint = std::function<void(const LogPoint&)>;
  using NameOf = std::function<std::string(PeerId)>;

  // `take_line`: one JSON object a line; may be empty. `name_of`: empty where nobody knows it.
  EventLog(Runtime& runtime, RunJournal& journal, TakeLine take_line, NameOf name_of = {});
  void give_points_to(TakePoint take_point) { take_point_ = std::move(take_point); }
  void restore(std::vector<EventRecord> newest);  // of the journal, oldest first

  void event(const std::string& kind, const std::string& detail, LogLevel level = LogLevel::kInfo);
  // About one peer: the line names it, and the sentence begins with it.
  void of_peer(const Seat& seat, const std::string& kind, const std::string& what,
               LogLevel level = LogLevel::kInfo);
  // For sentences: "gpu-box (peer 3, stage 1)".
  std::string who(const Seat& seat) const;
  std::string who(PeerId peer) const;  // "gpu-box (peer 3)"
  // In log.jsonl, too: what can't wait for the journal, because it is about it.
  void event_at_once(const std::string& kind, const std::string& detail, LogLevel level);
  bool takes_lines() const { return take_line_ != nullptr || take_point_ != nullptr; }
  // Of a step or an evaluation: its line, and its numbers.
  void add(const StepLogLine& line) { add(to_json_line(line), point_of(line)); }
  void add(const EvalLogLine& line) { add(to_json_line(line), point_of(line)); }
  void flush();  // as far as the journal is durable
  const std::deque<EventRecord>& newest() const { return newest_; }  // oldest first
  double wall_seconds() const { return runtime_.wall_seconds(); }

 private:
  struct Line {
    std::string json;
    std::optional<LogPoint> point;
    std::uint64_t after = 0;  // so many records of the journal are durable
  };
  std::string recorded(EventLogLine line);
  void add(std::string json, std::optional<LogPoint> point);
  std::string name(PeerId peer) const { return name_of_ ? name_of_(peer) : std::string(); }

  Runtime& runtime_;
  RunJournal& journal_;
  TakeLine take_line_;
  TakePoint take_point_;
  NameOf name_of_;
  std::deque<Line> lines_;
  std::deque<EventRecord> newest_;
};

}  // namespace swarmline
