#include "balancer/zone_traffic.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace swarmline {
namespace {

using Shares = std::map<std::string, double>;  // of all, by zone

Shares shares_of(std::span<const ZonedSpeed> peers) {
  Shares shares;
  double all = 0;
  for (const ZonedSpeed& peer : peers) {
    SWARMLINE_CHECK(peer.speed > 0);
    shares[peer.zone] += peer.speed;
    all += peer.speed;
  }
  for (auto& [zone, share] : shares) share /= all;
  return shares;
}

// What both have of a zone stays there.
double inside(const Shares& senders, const Shares& receivers, const std::string& zone) {
  const auto from = senders.find(zone), to = receivers.find(zone);
  if (zone.empty() || from == senders.end() || to == receivers.end()) return 0;
  return std::min(from->second, to->second);
}

}  // namespace

ZoneTraffic::ZoneTraffic(std::span<const ZonedSpeed> sending,
                         std::span<const ZonedSpeed> receiving) {
  const Shares senders = shares_of(sending), receivers = shares_of(receiving);
  double crossing = 1;
  for (const auto& [zone, share] : senders) crossing -= inside(senders, receivers, zone);
  for (const auto& [from, sent] : senders) {
    const double leaving = sent - inside(senders, receivers, from);
    for (const auto& [to, taken] : receivers) {
      const double room = taken - inside(senders, receivers, to);
      double flow = from == to ? inside(senders, receivers, from) : 0;
      if (crossing > 0) flow += leaving * room / crossing;
      weights_[{from, to}] = std::clamp(flow / (sent * taken), kZoneWeightMin, kZoneWeightMax);
    }
  }
}

double ZoneTraffic::weight(const std::string& from, const std::string& to) const {
  const auto found = weights_.find({from, to});
  return found == weights_.end() ? 1 : found->second;
}

double ZoneTraffic::difference(const ZoneTraffic& other) const {
  double most = 0;
  for (const ZoneTraffic* one : {this, &other})
    for (const auto& [zones, weight] : one->weights_)
      most = std::max(most, std::abs(this->weight(zones.first, zones.second) -
                                     other.weight(zones.first, zones.second)));
  return most;
}

}  // namespace swarmline
