#include "sim/scenario/zone_links.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "base/limits.h"
#include "engine/store/files.h"

namespace swarmline {
namespace {

constexpr double kLatencyMsMax = 60e3;
constexpr double kLinkMegabitMax = 1e8;
constexpr std::string_view kLinksKey = "swarmline links";

Error bad_line(std::size_t line, const std::string& expected) {
  return {ErrorCode::kUserMistake, fmt::format("line {}: expected {}", line, expected)};
}

struct Header {
  std::string format;
  std::map<std::string, std::string> words;
};

void read_comment(const std::string& line, Header& header) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string::npos || line.size() < 2) return;
  const std::string key = line.substr(2, colon - 2);
  if (key == kLinksKey) header.format = line.substr(colon + 2);
  header.words.emplace(key, line.substr(colon + 2));
}

Result<void> read_link(const std::string& line, std::size_t at, Duration jitter, ZoneLinks& zones) {
  std::istringstream words(line);
  std::string a, b, more;
  double one_way_ms = -1, megabit = -1;
  if (!(words >> a >> b >> one_way_ms >> megabit) || words >> more || one_way_ms < 0 ||
      one_way_ms > kLatencyMsMax || megabit <= 0 || megabit > kLinkMegabitMax)
    return std::unexpected(bad_line(at, "ZONE ZONE ONE_WAY_MS MBIT_PER_SECOND"));
  if (a == b) return std::unexpected(bad_line(at, "two zones, found \"" + a + "\" twice"));
  if (zones.links.size() == kZoneLinksMax)
    return std::unexpected(bad_line(at, fmt::format("at most {} links", kZoneLinksMax)));
  const SimLink link{.latency = from_seconds(one_way_ms / 1e3),
                     .jitter = jitter,
                     .bytes_per_second = megabit * 1e6 / 8,
                     .small_between = true};
  if (!zones.links.emplace(std::minmax(a, b), link).second)
    return std::unexpected(
        bad_line(at, fmt::format("each pair once, found {} and {} again", a, b)));
  return {};
}

}  // namespace

const SimLink* ZoneLinks::between(const std::string& a, const std::string& b) const {
  const auto link = links.find(std::minmax(a, b));
  return link == links.end() ? nullptr : &link->second;
}

bool ZoneLinks::knows(const std::string& zone) const {
  return std::ranges::any_of(links, [&](const auto& link) {
    return link.first.first == zone || link.first.second == zone;
  });
}

Result<ZoneLinks> parse_zone_links(std::string_view text, Duration jitter) {
  std::istringstream lines{std::string(text)};
  ZoneLinks zones;
  Header header;
  std::size_t at = 0;
  for (std::string line; std::getline(lines, line);) {
    ++at;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line.front() == '#') {
      read_comment(line, header);
      continue;
    }
    if (header.format != std::to_string(kZoneLinksFormat))
      return std::unexpected(bad_line(
          at, fmt::format("the line \"# {}: {}\" above all links", kLinksKey, kZoneLinksFormat)));
    SWARMLINE_TRY(read_link(line, at, jitter, zones));
  }
  if (zones.links.empty()) return fail(ErrorCode::kUserMistake, "no links, expected some");
  zones.name = header.words["name"];
  zones.source = header.words["source"];
  zones.licence = header.words["licence"];
  return zones;
}

Result<ZoneLinks> load_zone_links(const std::string& path, Duration jitter) {
  const auto text = read_text_file(path, Limits::config_file_bytes_max);
  if (!text) return std::unexpected(text.error());
  auto zones = parse_zone_links(*text, jitter);
  if (!zones) return fail(zones.error().code, path + ": " + zones.error().what);
  return zones;
}

}  // namespace swarmline
