// Who sends how much to which zone: nothing crosses that need not, and nobody gets more or less.
#include "balancer/zone_traffic.h"

#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swarmline {
namespace {

using Peers = std::vector<ZonedSpeed>;

double sum(const Peers& peers) {
  double all = 0;
  for (const ZonedSpeed& peer : peers) all += peer.speed;
  return all;
}
// Flows between zones when everybody sends by speed times weight, shares of all.
std::map<std::pair<std::string, std::string>, double> flows(const Peers& senders,
                                                            const Peers& receivers,
                                                            const ZoneTraffic& traffic) {
  std::map<std::pair<std::string, std::string>, double> flows;
  for (const ZonedSpeed& from : senders) {
    double weights = 0;
    for (const ZonedSpeed& to : receivers) weights += to.speed * traffic.weight(from.zone, to.zone);
    for (const ZonedSpeed& to : receivers)
      flows[{from.zone, to.zone}] +=
          from.speed / sum(senders) * to.speed * traffic.weight(from.zone, to.zone) / weights;
  }
  return flows;
}

TEST(ZoneTraffic, WhereZonesMatchNothingCrosses) {
  const Peers peers = {{"a", 1}, {"a", 2}, {"b", 3}};
  const ZoneTraffic traffic(peers, peers);
  EXPECT_EQ(traffic.weight("a", "a"), 2);
  EXPECT_EQ(traffic.weight("b", "b"), 2);
  EXPECT_EQ(traffic.weight("a", "b"), kZoneWeightMin);
  EXPECT_EQ(traffic.weight("b", "a"), kZoneWeightMin);
}

TEST(ZoneTraffic, WithoutZonesOrInOneSpeedAloneCounts) {
  EXPECT_EQ(ZoneTraffic().weight("a", "b"), 1);
  const Peers one = {{"a", 1}, {"a", 3}}, none = {{"", 1}, {"", 3}};
  EXPECT_EQ(ZoneTraffic(one, one).weight("a", "a"), 1);
  EXPECT_EQ(ZoneTraffic(none, none).weight("", ""), 1);
  EXPECT_EQ(ZoneTraffic(none, one).weight("", "a"), 1);
}

TEST(ZoneTraffic, WhatAZoneCannotTakeGoesWhereThereIsRoom) {
  // a sends three quarters and takes a quarter; half of all crosses to b.
  const Peers senders = {{"a", 3}, {"b", 1}}, receivers = {{"a", 1}, {"b", 3}};
  const ZoneTraffic traffic(senders, receivers);
  EXPECT_NEAR(traffic.weight("a", "a"), 0.25 / (0.75 * 0.25), 1e-12);
  EXPECT_NEAR(traffic.weight("a", "b"), 0.5 / (0.75 * 0.75), 1e-12);
  EXPECT_NEAR(traffic.weight("b", "b"), 0.25 / (0.25 * 0.75), 1e-12);
  EXPECT_EQ(traffic.weight("b", "a"), kZoneWeightMin);
}

TEST(ZoneTraffic, EveryReceiverGetsWhatItsSpeedIsWorthAndNothingCrossesThatNeedNot) {
  Rng rng(5);
  for (int round = 0; round < 500; ++round) {
    const auto draw = [&] {
      Peers peers;
      const auto count = 1 + rng.below(8);
      for (std::uint64_t i = 0; i < count; ++i)
        peers.push_back({.zone = std::string(rng.below(5), "abcd"[rng.below(4)]).substr(0, 1),
                         .speed = 0.2 + rng.uniform()});
      return peers;
    };
    const Peers senders = draw(), receivers = draw();
    const ZoneTraffic traffic(senders, receivers);
    std::map<std::string, double> sent, taken, got;
    for (const ZonedSpeed& from : senders) sent[from.zone] += from.speed / sum(senders);
    for (const ZonedSpeed& to : receivers) taken[to.zone] += to.speed / sum(receivers);
    double stays = 0, could_stay = 0;
    for (const auto& [zones, flow] : flows(senders, receivers, traffic)) {
      got[zones.second] += flow;
      if (zones.first == zones.second && !zones.first.empty()) stays += flow;
    }
    for (const auto& [zone, share] : sent)
      if (!zone.empty() && taken.contains(zone)) could_stay += std::min(share, taken.at(zone));
    // The least weight lets a little through.
    EXPECT_GE(stays, could_stay * (1 - 2 * kZoneWeightMin) - 1e-12) << round;
    for (const auto& [zone, share] : taken)
      EXPECT_NEAR(got[zone], share, kZoneWeightMin) << round << " " << zone;
  }
}

TEST(ZoneTraffic, TheDifferenceIsTheLargestOfAWeight) {
  const Peers peers = {{"a", 1}, {"b", 1}};
  const ZoneTraffic traffic(peers, peers);
  EXPECT_EQ(traffic.difference(traffic), 0);
  EXPECT_EQ(traffic.difference(ZoneTraffic()), 1);
  EXPECT_EQ(ZoneTraffic().difference(traffic), 1);
}

}  // namespace
}  // namespace swarmline
