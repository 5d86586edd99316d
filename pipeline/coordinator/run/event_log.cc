#include "pipeline/coordinator/run/event_log.h"

#include <utility>

#include <fmt/format.h>

#include "pipeline/coordinator/members/membership.h"

namespace swarmline {

EventLog::EventLog(Runtime& runtime, RunJournal& journal, TakeLine take_line, NameOf name_of)
    : runtime_(runtime),
      journal_(journal),
      take_line_(std::move(take_line)),
      name_of_(std::move(name_of)) {}

void EventLog::restore(std::vector<EventRecord> newest) {
  newest_.insert(newest_.begin(), std::make_move_iterator(newest.begin()),
                 std::make_move_iterator(newest.end()));
  while (newest_.size() > kNewestKept) newest_.pop_front();
}

std::string EventLog::who(const Seat& seat) const {
  return called(seat, name(seat.peer));
}

std::string EventLog::who(PeerId peer) const {
  const std::string known = name(peer);
  return known.empty() ? fmt::format("peer {}", peer.value)
                       : fmt::format("{} (peer {})", known, peer.value);
}

void EventLog::event(const std::string& kind, const std::string& detail, LogLevel level) {
  const std::string text = recorded({.kind = kind, .detail = detail, .level = level});
  add(text, std::nullopt);
}

void EventLog::of_peer(const Seat& seat, const std::string& kind, const std::string& what,
                       LogLevel level) {
  const std::string text =
      recorded({.kind = kind,
                .detail = who(seat) + what,
                .level = level,
                .subject = EventLogLine::Subject{.seat = seat, .name = name(seat.peer)}});
  add(text, std::nullopt);
}

void EventLog::event_at_once(const std::string& kind, const std::string& detail, LogLevel level) {
  const std::string text = recorded({.kind = kind, .detail = detail, .level = level});
  if (take_line_) take_line_(text);
}

std::string EventLog::recorded(EventLogLine line) {
  log(line.level, "{}: {}", line.kind, line.detail);
  line.wall_seconds = runtime_.wall_seconds();
  const EventRecord& record = newest_.emplace_back(EventRecord{.wall_seconds = line.wall_seconds,
                                                               .kind = line.kind,
                                                               .detail = line.detail,
                                                               .level = line.level});
  journal_.record_event(record);
  if (newest_.size() > kNewestKept) newest_.pop_front();
  return to_json_line(line);
}

void EventLog::add(std::string json, std::optional<LogPoint> point) {
  if (!takes_lines()) return;
  lines_.push_back(
      {.json = std::move(json), .point = std::move(point), .after = journal_.progress().given});
}

void EventLog::flush() {
  while (!lines_.empty() && lines_.front().after <= journal_.progress().durable) {
    const Line& next = lines_.front();
    if (take_line_) take_line_(next.json);
    if (take_point_ && next.point) take_point_(*next.point);
    lines_.pop_front();
  }
}

}  // namespace swarmline
