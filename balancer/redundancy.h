// How much of what holds a stage's state one loss can take: by zone, else by host.
//   Rule:   two holders are apart when their zones are known and differ; where a zone is unknown
//           or the same, when their hosts differ. A host that is unknown is nobody else's.
//   Bounds: a change of a tally and a question to it cost O(log(places)).
//   Thread: any, plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace swarmline {

struct Location {
  std::string zone;  // empty: unknown
  std::string host;  // empty: unknown
  bool operator==(const Location&) const = default;
};

// Of several holders, as far apart as any two of them are.
enum class Redundancy : std::uint8_t {
  kSingle,   // one holder, or none
  kOneHost,  // they vanish with one machine
  kTwoHosts,
  kTwoZones,
};

// Throughput that is given up, as a share, to have a second zone or host. Seats whose throughputs
// differ by more are chosen by throughput alone.
inline constexpr double kRedundancyCostMax = 0.05;

// One holder from all of several.
enum class Apart : std::uint8_t { kSameHost, kOtherHost, kOtherZone };

class LocationTally {
 public:
  void add(const Location& at) { change(at, 1); }
  void remove(const Location& at) { change(at, -1); }
  Redundancy redundancy() const { return redundancy_after({}, {}); }
  // With others: those of `gone` are in the tally.
  Redundancy redundancy_after(std::span<const Location> gone, std::span<const Location> come) const;
  // kOtherZone: its zone is known and is none of theirs, of which one at least is known.
  Apart apart(const Location& at) const;
  std::uint32_t holders() const { return holders_; }
  const std::map<std::string, std::uint32_t>& zones() const { return zones_; }  // the known ones
  bool operator==(const LocationTally&) const = default;

 private:
  void change(const Location& at, std::int32_t by);

  std::uint32_t holders_ = 0;
  std::uint32_t unknown_hosts_ = 0;
  std::map<std::string, std::uint32_t> zones_;  // holders of each
  std::map<std::string, std::uint32_t> hosts_;
};

// A stage that somebody may be seated at.
struct SeatOption {
  std::size_t stage = 0;
  double throughput = 0;
  const LocationTally* holders = nullptr;  // null: nobody knows
};
// The stage of the option whose redundancy `joiner` raises most, among those with up to
// kRedundancyCostMax more throughput than the first; of equals the first. Where several lack a
// second zone: the one whose own zone has the fewest of all `holders`, by stage, since whoever
// comes from there next can't help it. `options`: the best by throughput first, not empty.
std::size_t most_redundant(std::span<const SeatOption> options, const Location& joiner,
                           std::span<const LocationTally* const> holders);

}  // namespace swarmline
