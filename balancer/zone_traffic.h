// How the senders of one stage spread what they send over the receivers of the next, so that as
// much as possible stays inside a zone and every receiver still gets what its speed is worth.
//   Rule:   of a zone's senders, as much stays as its receivers can take of all there is; the rest
//           goes to the zones whose receivers have room left, by that room. Within a zone by speed.
//           Who says no zone is near nobody.
//   Bounds: O(zones^2). Thread: any, plain values.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>

namespace swarmline {

// Zones' shares are known to some percent: a receiver is never left out altogether.
inline constexpr double kZoneWeightMin = 1.0 / 64;
inline constexpr double kZoneWeightMax = 64;

struct ZonedSpeed {
  std::string zone;  // empty: unknown
  double speed = 1;  // any common unit within a stage, > 0
};

class ZoneTraffic {
 public:
  ZoneTraffic() = default;  // no zone is preferred
  ZoneTraffic(std::span<const ZonedSpeed> senders, std::span<const ZonedSpeed> receivers);

  // Times its speed: a receiver's share of what a sender of zone `from` sends. 1: by speed alone.
  double weight(const std::string& from, const std::string& to) const;
  // The most by which a weight differs.
  double difference(const ZoneTraffic& other) const;

 private:
  std::map<std::pair<std::string, std::string>, double> weights_;
};

}  // namespace swarmline
