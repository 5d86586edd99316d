#include "pipeline/coordinator/run/event_log.h"

#include <utility>

#include "engine/store/log_lines.h"

namespace swarmline {

EventLog::EventLog(Runtime& runtime, RunJournal& journal, TakeLine take_line)
    : runtime_(runtime), journal_(journal), take_line_(std::move(take_line)) {}

void EventLog::event(const std::string& kind, const std::string& detail, LogLevel level) {
  const std::string text = recorded(kind, detail, level);
  if (take_line_) line(text);
}

void EventLog::event_at_once(const std::string& kind, const std::string& detail, LogLevel level) {
  const std::string text = recorded(kind, detail, level);
  if (take_line_) take_line_(text);
}

std::string EventLog::recorded(const std::string& kind, const std::string& detail, LogLevel level) {
  log(level, "{}: {}", kind, detail);
  EventLogLine line;
  line.kind = kind;
  line.detail = detail;
  line.wall_seconds = runtime_.wall_seconds();
  journal_.record_event(line.wall_seconds, kind, detail);
  newest_.push_back({.wall_seconds = line.wall_seconds, .kind = kind, .detail = detail});
  if (newest_.size() > kNewestKept) newest_.pop_front();
  return to_json_line(line);
}

void EventLog::line(const std::string& json) {
  lines_.push_back({.json = json, .after = journal_.progress().given});
}

void EventLog::flush() {
  while (!lines_.empty() && lines_.front().after <= journal_.progress().durable) {
    take_line_(lines_.front().json);
    lines_.pop_front();
  }
}

}  // namespace swarmline
