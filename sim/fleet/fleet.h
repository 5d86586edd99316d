// When machines of a fleet come and go: the project's own small format, and the two public traces'
// formats it is converted from.
//   Format:    docs/formats/fleet.md.
//   Units:     seconds since the fleet's beginning; never going back.
//   Errors:    kCorrupt or kIncompatible, with the line's number.
//   Bounds:    kFleetEventsMax lines, kFleetPeersMax alive at a time, kFleetSecondsMax.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace swarmline {

inline constexpr int kFleetFormat = 1;
inline constexpr std::size_t kFleetEventsMax = 1'000'000;
inline constexpr std::uint32_t kFleetPeersMax = 100'000;
inline constexpr double kFleetSecondsMax = 10 * 365.25 * 86'400;  // ten years

// What changes at one instant: `removed` leave, then `added` come. A machine that comes and goes in
// the same instant is in neither.
struct FleetEvent {
  double seconds = 0;
  // Numbers of machines, in order of first appearance; of a fleet of counts both stay empty.
  std::vector<std::uint32_t> added;
  std::vector<std::uint32_t> removed;
  std::uint32_t count = 0;  // alive after the event
  bool operator==(const FleetEvent&) const = default;
};

struct Fleet {
  std::string name;
  std::string source;  // for people: where it is from
  std::string licence;
  bool names_nodes = false;        // false: counts, who leaves is not said
  std::vector<FleetEvent> events;  // ascending, one an instant
  double seconds = 0;              // until when it was watched; no event is later
  std::uint32_t peak() const;
  bool operator==(const Fleet&) const = default;
};

Result<Fleet> parse_fleet(std::string_view text);
Result<Fleet> load_fleet(const std::string& path);
std::string fleet_text(const Fleet& fleet);

// "MILLISECONDS,add|remove,NODE" lines.
Result<Fleet> fleet_from_node_csv(std::string_view text);
// "DATE, TIME, COUNT" lines; a line that steps back in time counts as at the time before it.
Result<Fleet> fleet_from_count_log(std::string_view text);
// Whichever of the two the first line is of.
Result<Fleet> fleet_from_trace(std::string_view text);

}  // namespace swarmline
