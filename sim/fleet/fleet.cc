#include "sim/fleet/fleet.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "engine/store/files.h"

namespace swarmline {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Calls f(line, number) for each line without its end; stops at the first error.
template <typename F>
Result<void> for_each_line(std::string_view text, F f) {
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (++number > kFleetEventsMax) {
      return fail(ErrorCode::kCorrupt, fmt::format("more than {} lines", kFleetEventsMax));
    }
    if (!line.empty()) SWARMLINE_TRY(f(line, number));
  }
  return {};
}

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = line.find(separator);
    if (const auto part = trimmed(line.substr(0, end)); !part.empty() || separator != ' ')
      parts.push_back(part);
    if (end == std::string_view::npos) return parts;
    line.remove_prefix(end + 1);
  }
}

template <typename T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!(value >= T{} && value <= std::numeric_limits<T>::max())) return std::nullopt;  // nor a NaN
  return value;
}

Error bad_line(std::size_t line, const std::string& expected) {
  return {ErrorCode::kCorrupt, fmt::format("line {}: expected {}", line, expected)};
}

// Collects events, one an instant, and checks that they make sense.
class FleetBuilder {
 public:
  explicit FleetBuilder(bool names_nodes) { fleet_.names_nodes = names_nodes; }

  Result<void> add(std::size_t line, double seconds, std::string_view node) {
    const auto [known, is_new] =
        numbers_.try_emplace(std::string(node), static_cast<std::uint32_t>(numbers_.size()));
    if (!alive_.insert(known->second).second)
      return fail_at(line, fmt::format("\"{}\" not to be there already", node));
    if (alive_.size() > kFleetPeersMax) return fail_at(line, "fewer machines");
    SWARMLINE_TRY(open(line, seconds));
    fleet_.events.back().added.push_back(known->second);
    fleet_.events.back().count = static_cast<std::uint32_t>(alive_.size());
    return {};
  }
  Result<void> remove(std::size_t line, double seconds, std::string_view node) {
    const auto known = numbers_.find(std::string(node));
    if (known == numbers_.end() || alive_.erase(known->second) == 0)
      return fail_at(line, fmt::format("\"{}\" to be there", node));
    SWARMLINE_TRY(open(line, seconds));
    FleetEvent& event = fleet_.events.back();
    if (std::erase(event.added, known->second) == 0) event.removed.push_back(known->second);
    event.count = static_cast<std::uint32_t>(alive_.size());
    return {};
  }
  Result<void> count(std::size_t line, double seconds, std::uint32_t alive) {
    if (alive > kFleetPeersMax) return fail_at(line, "fewer machines");
    SWARMLINE_TRY(watch_until(line, seconds));
    if (!fleet_.events.empty() && fleet_.events.back().count == alive) return {};
    SWARMLINE_TRY(open(line, seconds));
    fleet_.events.back().count = alive;
    return {};
  }
  Result<void> watch_until(std::size_t line, double seconds) {
    if (seconds < fleet_.seconds) return fail_at(line, "time not to go back");
    if (seconds > kFleetSecondsMax) return fail_at(line, "no more than ten years of seconds");
    fleet_.seconds = seconds;
    return {};
  }
  Fleet& fleet() { return fleet_; }

 private:
  static Result<void> fail_at(std::size_t line, const std::string& expected) {
    return std::unexpected(bad_line(line, expected));
  }
  Result<void> open(std::size_t line, double seconds) {
    SWARMLINE_TRY(watch_until(line, seconds));
    if (!fleet_.events.empty() && seconds == fleet_.events.back().seconds) return {};
    fleet_.events.emplace_back();
    fleet_.events.back().seconds = seconds;
    return {};
  }

  Fleet fleet_;
  std::map<std::string, std::uint32_t> numbers_;
  std::set<std::uint32_t> alive_;
};

struct Header {
  std::optional<int> format;
  std::string name, source, licence, kind, seconds;
};

void read_comment(std::string_view line, Header& header) {
  line.remove_prefix(1);
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string_view key = trimmed(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (key == "swarmline fleet") header.format = number<int>(value);
  if (key == "name") header.name = value;
  if (key == "source") header.source = value;
  if (key == "licence") header.licence = value;
  if (key == "kind") header.kind = value;
  if (key == "seconds") header.seconds = value;
}

Result<void> check_header(const Header& header) {
  if (!header.format)
    return fail(ErrorCode::kCorrupt, "no line \"# swarmline fleet: 1\": not a fleet file");
  if (*header.format != kFleetFormat) {
    return fail(ErrorCode::kIncompatible, fmt::format("fleet format {}, this program reads {}",
                                                      *header.format, kFleetFormat));
  }
  if (header.kind == "nodes" || header.kind == "counts") return {};
  return fail(ErrorCode::kCorrupt, "no line \"# kind: nodes\" or \"# kind: counts\"");
}

Result<void> read_event(FleetBuilder& builder, std::string_view line, std::size_t at) {
  const auto words = split(line, ' ');
  const auto seconds = number<double>(words[0]);
  if (builder.fleet().names_nodes) {
    if (words.size() == 3 && seconds && words[1] == "add")
      return builder.add(at, *seconds, words[2]);
    if (words.size() == 3 && seconds && words[1] == "remove")
      return builder.remove(at, *seconds, words[2]);
    return std::unexpected(bad_line(at, "SECONDS add|remove NAME"));
  }
  const auto alive = words.size() == 2 ? number<std::uint32_t>(words[1]) : std::nullopt;
  if (!seconds || !alive) return std::unexpected(bad_line(at, "SECONDS COUNT"));
  return builder.count(at, *seconds, *alive);
}

// Seconds since some midnight, from "YYYY-MM-DD" and "HH:MM:SS".
std::optional<double> clock_seconds(std::string_view date, std::string_view time) {
  const auto day = split(date, '-');
  const auto clock = split(time, ':');
  if (day.size() != 3 || clock.size() != 3) return std::nullopt;
  std::int64_t part[6];
  for (std::size_t i = 0; i < 6; ++i) {
    const auto value = number<std::int64_t>(i < 3 ? day[i] : clock[i - 3]);
    if (!value || *value > 9999) return std::nullopt;
    part[i] = *value;
  }
  // Days of the civil calendar; March is the first month, so that the leap day comes last.
  const std::int64_t year = part[1] <= 2 ? part[0] - 1 : part[0];
  const std::int64_t month = (part[1] + 9) % 12;
  const std::int64_t days =
      365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + part[2];
  return static_cast<double>(((days * 24 + part[3]) * 60 + part[4]) * 60 + part[5]);
}

}  // namespace

std::uint32_t Fleet::peak() const {
  std::uint32_t most = 0;
  for (const FleetEvent& event : events) most = std::max(most, event.count);
  return most;
}

Result<Fleet> parse_fleet(std::string_view text) {
  Header header;
  SWARMLINE_TRY(for_each_line(text, [&](std::string_view line, std::size_t) -> Result<void> {
    if (line.front() == '#') read_comment(line, header);
    return {};
  }));
  SWARMLINE_TRY(check_header(header));
  FleetBuilder builder(header.kind == "nodes");
  SWARMLINE_TRY(for_each_line(text, [&](std::string_view line, std::size_t at) -> Result<void> {
    if (line.front() == '#') return {};
    return read_event(builder, line, at);
  }));
  Fleet fleet = std::move(builder.fleet());
  if (!header.seconds.empty()) {
    const auto seconds = number<double>(header.seconds);
    if (!seconds || *seconds < fleet.seconds || *seconds > kFleetSecondsMax) {
      return fail(ErrorCode::kCorrupt, fmt::format("\"# seconds: {}\": expected at least {}, when "
                                                   "the last event is, and at most ten years",
                                                   header.seconds, fleet.seconds));
    }
    fleet.seconds = *seconds;
  }
  fleet.name = header.name;
  fleet.source = header.source;
  fleet.licence = header.licence;
  return fleet;
}

Result<Fleet> load_fleet(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  const BytesView bytes = (*file)->bytes();
  auto fleet = parse_fleet({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!fleet) return fail(fleet.error().code, path + ": " + fleet.error().what);
  return fleet;
}

std::string fleet_text(const Fleet& fleet) {
  std::string text = fmt::format(
      "# swarmline fleet: {}\n# name: {}\n# source: {}\n# licence: {}\n# kind: {}\n# seconds: {}\n",
      kFleetFormat, fleet.name, fleet.source, fleet.licence, fleet.names_nodes ? "nodes" : "counts",
      fleet.seconds);
  for (const FleetEvent& event : fleet.events) {
    if (!fleet.names_nodes) text += fmt::format("{} {}\n", event.seconds, event.count);
    for (const auto node : event.removed)
      text += fmt::format("{} remove n{}\n", event.seconds, node);
    for (const auto node : event.added) text += fmt::format("{} add n{}\n", event.seconds, node);
  }
  return text;
}

Result<Fleet> fleet_from_node_csv(std::string_view text) {
  FleetBuilder builder(true);
  SWARMLINE_TRY(for_each_line(text, [&](std::string_view line, std::size_t at) -> Result<void> {
    const auto words = split(line, ',');
    const auto ms = words.size() == 3 ? number<double>(words[0]) : std::nullopt;
    if (ms && words[1] == "add") return builder.add(at, *ms / 1e3, words[2]);
    if (ms && words[1] == "remove") return builder.remove(at, *ms / 1e3, words[2]);
    return std::unexpected(bad_line(at, "MILLISECONDS,add|remove,NODE"));
  }));
  return std::move(builder.fleet());
}

Result<Fleet> fleet_from_count_log(std::string_view text) {
  FleetBuilder builder(false);
  std::optional<double> first;
  double last = 0;
  SWARMLINE_TRY(for_each_line(text, [&](std::string_view line, std::size_t at) -> Result<void> {
    const auto words = split(line, ',');
    const auto time = words.size() == 3 ? clock_seconds(words[0], words[1]) : std::nullopt;
    const auto alive = words.size() == 3 ? number<std::uint32_t>(words[2]) : std::nullopt;
    if (!time || !alive) return std::unexpected(bad_line(at, "DATE, TIME, COUNT"));
    if (!first) first = *time;
    last = std::max(last, *time - *first);
    return builder.count(at, last, *alive);
  }));
  return std::move(builder.fleet());
}

Result<Fleet> fleet_from_trace(std::string_view text) {
  const std::string_view first = text.substr(0, text.find('\n'));
  const bool names_nodes = first.contains(",add,") || first.contains(",remove,");
  return names_nodes ? fleet_from_node_csv(text) : fleet_from_count_log(text);
}

}  // namespace swarmline
