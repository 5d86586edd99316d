#include "pipeline/coordinator/run/event_log.h"

#include <utility>

#include "engine/store/log_lines.h"

namespace swarmline {

EventLog::EventLog(Runtime& runtime, RunJournal& journal, TakeLine take_line)
    : runtime_(runtime), journal_(journal), take_line_(std::move(take_line)) {}

void EventLog::event(const std::string& kind, const std::string& detail, LogLevel level) {
  log(level, "{}: {}", kind, detail);
  const double wall = runtime_.wall_seconds();
  if (auto kept = journal_.record_event(wall, kind, detail); !kept)
    log(LogLevel::kError, "the journal can't be written: {}", kept.error().what);
  if (!take_line_) return;
  EventLogLine line;
  line.kind = kind;
  line.detail = detail;
  line.wall_seconds = wall;
  take_line_(to_json_line(line));
}

}  // namespace swarmline
