// Which zone's peers get how much of what a stage sends: the part of membership.h that says it to
// them.

#include <algorithm>
#include <functional>
#include <utility>

#include "base/marks.h"
#include "pipeline/coordinator/members/membership.h"

namespace swarmline {

namespace {
// Speeds are measured to some percent: zones' weights that differ by less are left as they are.
constexpr double kWeightSlack = 0.1;
}  // namespace

bool Membership::keeps_in_zones() const {
  if (zones_ != Zones::kKeptWherePaid) return zones_ == Zones::kKept;
  return std::ranges::any_of(members_, [](const auto& entry) {
    return entry.second.state != MemberState::kLost && entry.second.egress_price > 0;
  });
}

std::vector<ZonedSpeed> Membership::zoned_speeds(const std::vector<Seat>& seats) const {
  double seconds = 0;
  std::uint32_t measured = 0;
  for (const Seat& seat : seats) {
    const double own = members_.at(seat.peer).seconds_per_microbatch;
    seconds += own;
    measured += own > 0 ? 1 : 0;
  }
  const double usual = measured > 0 ? seconds / measured : 1;
  std::vector<ZonedSpeed> speeds;
  for (const Seat& seat : seats) {
    const Member& member = members_.at(seat.peer);
    const double own = member.seconds_per_microbatch;
    speeds.push_back({.zone = member.at.zone, .speed = 1 / (own > 0 ? own : usual)});
  }
  return speeds;
}

ZoneTraffic Membership::traffic_of(const std::vector<Seat>& senders, StageId next) const {
  if (!keeps_in_zones()) return {};
  std::vector<Seat> receivers = serving_of(next);
  const auto stays = [this](const Seat& seat) { return !members_.at(seat.peer).draining; };
  if (std::ranges::any_of(receivers, stays)) std::erase_if(receivers, std::not_fn(stays));
  if (senders.empty() || receivers.empty()) return {};
  return {zoned_speeds(senders), zoned_speeds(receivers)};
}

bool Membership::is_weighed(StageId senders, const ZoneTraffic& traffic) const {
  const auto told = traffic_.find(senders);
  return traffic.difference(told == traffic_.end() ? ZoneTraffic() : told->second) <= kWeightSlack;
}

bool Membership::weigh_zones(StageId senders, ZoneTraffic traffic) {
  if (is_weighed(senders, traffic)) return false;
  SWARMLINE_MARK("membership.zones_weighed");
  traffic_[senders] = std::move(traffic);
  return true;
}

bool Membership::shares_are_stale() const {
  if (!keeps_in_zones()) return false;
  for (std::uint16_t s = 1; s < targets_.size(); ++s) {
    const StageId before{static_cast<std::uint16_t>(s - 1)};
    if (!is_weighed(before, traffic_of(serving_of(before), StageId{s}))) return true;
  }
  return false;
}

double Membership::weight_of(const Seat& sender, const Seat& receiver) const {
  const auto traffic = traffic_.find(sender.stage);
  if (traffic == traffic_.end()) return 1;
  return traffic->second.weight(members_.at(sender.peer).at.zone,
                                members_.at(receiver.peer).at.zone);
}

}  // namespace swarmline
