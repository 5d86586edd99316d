// Links between zones, as measured somewhere: what connects a machine of one with a machine of
// another.
//   Format: docs/formats/links.md. Units: seconds, bytes per second; both directions alike.
//   Errors: kUserMistake, "line N: expected ..."; of files kNotFound and kIo.
//   Bounds: kZoneLinksMax links. Thread: any.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "sim/doors/sim_link.h"

namespace swarmline {

inline constexpr int kZoneLinksFormat = 1;
inline constexpr std::size_t kZoneLinksMax = 100'000;

struct ZoneLinks {
  std::string name, source, licence;                             // for people
  std::map<std::pair<std::string, std::string>, SimLink> links;  // the lesser zone first

  const SimLink* between(const std::string& a, const std::string& b) const;  // null: not listed
  bool knows(const std::string& zone) const;
};

// `jitter`: of all links.
Result<ZoneLinks> parse_zone_links(std::string_view text, Duration jitter);
Result<ZoneLinks> load_zone_links(const std::string& path, Duration jitter);

}  // namespace swarmline
