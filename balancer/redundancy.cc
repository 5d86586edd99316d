#include "balancer/redundancy.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace swarmline {
namespace {

using Counts = std::map<std::string, std::uint32_t>;

void change_count(Counts& counts, const std::string& name, std::int32_t by) {
  if (by > 0) {
    ++counts[name];
    return;
  }
  const auto found = counts.find(name);
  SWARMLINE_CHECK(found != counts.end());
  if (--found->second == 0) counts.erase(found);
}

// Names in `counts` when `gone` are out of it and `come` are in it, each by its `name`.
std::size_t names_after(const Counts& counts, std::span<const Location> gone,
                        std::span<const Location> come, std::string Location::* name) {
  std::map<std::string_view, std::int64_t> changed;
  for (const Location& at : gone)
    if (!(at.*name).empty()) --changed[at.*name];
  for (const Location& at : come)
    if (!(at.*name).empty()) ++changed[at.*name];
  std::size_t names = counts.size();
  for (const auto& [which, by] : changed) {
    const auto found = counts.find(std::string(which));
    const std::int64_t before = found == counts.end() ? 0 : found->second;
    SWARMLINE_CHECK(before + by >= 0);
    if (before > 0 && before + by == 0) --names;
    if (before == 0 && by > 0) ++names;
  }
  return names;
}

// What one more holder is worth to those that a stage has; in order.
enum class JoinWorth : std::uint8_t {
  kSameHost,    // it vanishes with the others
  kOneMore,     // they are apart already, or it is no further apart than any other host
  kSecondHost,  // all were on one host
  kSecondZone,  // all were in one zone
};

JoinWorth join_worth(const LocationTally& holders, const Location& joiner) {
  if (holders.holders() == 0) return JoinWorth::kOneMore;
  const Redundancy before = holders.redundancy();
  const Redundancy after = holders.redundancy_after({}, std::span(&joiner, 1));
  if (after == Redundancy::kTwoZones && before != after) return JoinWorth::kSecondZone;
  if (before == Redundancy::kOneHost && before != after) return JoinWorth::kSecondHost;
  return after == Redundancy::kOneHost ? JoinWorth::kSameHost : JoinWorth::kOneMore;
}

}  // namespace

void LocationTally::change(const Location& at, std::int32_t by) {
  holders_ += static_cast<std::uint32_t>(by);
  if (!at.zone.empty()) change_count(zones_, at.zone, by);
  if (at.host.empty())
    unknown_hosts_ += static_cast<std::uint32_t>(by);
  else
    change_count(hosts_, at.host, by);
}

Redundancy LocationTally::redundancy_after(std::span<const Location> gone,
                                           std::span<const Location> come) const {
  SWARMLINE_CHECK(gone.size() <= holders_ + come.size());
  if (holders_ + come.size() - gone.size() < 2) return Redundancy::kSingle;
  if (names_after(zones_, gone, come, &Location::zone) >= 2) return Redundancy::kTwoZones;
  const auto has_no_host = [](const Location& at) { return at.host.empty(); };
  const auto unknown = unknown_hosts_ + std::ranges::count_if(come, has_no_host) -
                       std::ranges::count_if(gone, has_no_host);
  const bool differ = unknown > 0 || names_after(hosts_, gone, come, &Location::host) >= 2;
  return differ ? Redundancy::kTwoHosts : Redundancy::kOneHost;
}

Apart LocationTally::apart(const Location& at) const {
  if (!at.zone.empty() && !zones_.empty() && !zones_.contains(at.zone)) return Apart::kOtherZone;
  return at.host.empty() || !hosts_.contains(at.host) ? Apart::kOtherHost : Apart::kSameHost;
}

std::size_t most_redundant(std::span<const SeatOption> options, const Location& joiner,
                           std::span<const LocationTally* const> holders) {
  SWARMLINE_CHECK(!options.empty());
  Counts by_zone;
  for (const LocationTally* stage : holders)
    if (stage != nullptr)
      for (const auto& [zone, count] : stage->zones()) by_zone[zone] += count;
  const auto worth = [&](const SeatOption& option) {
    const JoinWorth join =
        option.holders == nullptr ? JoinWorth::kOneMore : join_worth(*option.holders, joiner);
    const std::int64_t rivals =
        join == JoinWorth::kSecondZone ? by_zone.at(option.holders->zones().begin()->first) : 0;
    return std::pair(join, -rivals);
  };
  const double most = options.front().throughput * (1 + kRedundancyCostMax);
  const SeatOption* best = &options.front();
  for (const SeatOption& option : options.subspan(1))
    if (option.throughput <= most && worth(option) > worth(*best)) best = &option;
  return best->stage;
}

}  // namespace swarmline
