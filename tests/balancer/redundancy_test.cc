// How far apart a stage's holders are, and whom that brings together.
#include "balancer/redundancy.h"

#include <vector>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

LocationTally tally(const std::vector<Location>& holders) {
  LocationTally tally;
  for (const Location& at : holders) tally.add(at);
  return tally;
}
Redundancy of(const std::vector<Location>& holders) {
  return tally(holders).redundancy();
}

TEST(Redundancy, ZonesCountBeforeHosts) {
  EXPECT_EQ(of({}), Redundancy::kSingle);
  EXPECT_EQ(of({{"a", "h"}}), Redundancy::kSingle);
  EXPECT_EQ(of({{"a", "h"}, {"b", "h"}}), Redundancy::kTwoZones);
  EXPECT_EQ(of({{"a", "h"}, {"a", "i"}}), Redundancy::kTwoHosts);
  EXPECT_EQ(of({{"a", "h"}, {"a", "h"}}), Redundancy::kOneHost);
}

TEST(Redundancy, AnUnknownZoneIsNoSecondOneAndAnUnknownHostIsNobodyElses) {
  EXPECT_EQ(of({{"a", "h"}, {"", "i"}}), Redundancy::kTwoHosts);
  EXPECT_EQ(of({{"a", "h"}, {"", "h"}}), Redundancy::kOneHost);
  EXPECT_EQ(of({{"", ""}, {"", ""}}), Redundancy::kTwoHosts);
  EXPECT_EQ(of({{"", "h"}, {"", ""}}), Redundancy::kTwoHosts);
}

// What is asked for, and what comes of doing it, are the same.
TEST(Redundancy, AChangeIsJudgedAsIfItWereDone) {
  const std::vector<Location> places = {{"a", "h"}, {"a", "i"}, {"b", "h"}, {"", "h"}, {"", ""}};
  for (const Location& first : places)
    for (const Location& second : places)
      for (const Location& gone : {first, second})
        for (const Location& come : places) {
          LocationTally holders = tally({first, second});
          const Redundancy without = holders.redundancy_after({&gone, 1}, {});
          const Redundancy instead = holders.redundancy_after({&gone, 1}, {&come, 1});
          holders.remove(gone);
          EXPECT_EQ(holders.redundancy(), without);
          holders.add(come);
          EXPECT_EQ(holders.redundancy(), instead);
        }
}

TEST(Redundancy, OneIsApartFromAllOfThem) {
  const LocationTally holders = tally({{"a", "1"}, {"b", "2"}, {"", "3"}});
  EXPECT_EQ(holders.apart({"c", "1"}), Apart::kOtherZone);
  EXPECT_EQ(holders.apart({"a", "4"}), Apart::kOtherHost);
  EXPECT_EQ(holders.apart({"", ""}), Apart::kOtherHost);
  EXPECT_EQ(holders.apart({"b", "3"}), Apart::kSameHost);
  EXPECT_EQ(tally({{"", "1"}}).apart({"c", "2"}), Apart::kOtherHost) << "it may be c";
}

std::size_t seat(const std::vector<LocationTally>& stages, const std::vector<double>& throughputs,
                 const Location& joiner) {
  std::vector<SeatOption> options;
  std::vector<const LocationTally*> holders;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    options.push_back({.stage = s, .throughput = throughputs[s], .holders = &stages[s]});
    holders.push_back(&stages[s]);
  }
  return most_redundant(options, joiner, holders);
}

TEST(MostRedundant, ASecondZoneIsWorthAFewPercentAndNoMore) {
  const std::vector<LocationTally> stages = {tally({{"a", "1"}}), tally({{"b", "2"}})};
  EXPECT_EQ(seat(stages, {1, 1 + kRedundancyCostMax}, {"a", "3"}), 1U);
  EXPECT_EQ(seat(stages, {1, 1.001 + kRedundancyCostMax}, {"a", "3"}), 0U);
  EXPECT_EQ(seat(stages, {1, 1}, {"b", "3"}), 0U);
}

TEST(MostRedundant, ASecondHostIsTheNextBest) {
  const std::vector<LocationTally> stages = {tally({{"", "1"}, {"", "2"}}),
                                             tally({{"", "3"}, {"", "3"}})};
  EXPECT_EQ(seat(stages, {1, 1}, {"", "4"}), 1U);
  EXPECT_EQ(seat(stages, {1, 1}, {"", "3"}), 0U) << "not where it is on the others' machine";
}

TEST(MostRedundant, WhereNothingTellsThemApartTheFirstIsTaken) {
  const std::vector<LocationTally> one_machine = {tally({{"", "1"}, {"", "1"}}),
                                                  tally({{"", "1"}})};
  EXPECT_EQ(seat(one_machine, {1, 1}, {"", "1"}), 0U);
  const std::vector<LocationTally> hosts = {tally({{"", "1"}, {"", "2"}}), tally({{"", "3"}})};
  EXPECT_EQ(seat(hosts, {1, 1}, {"", "4"}), 0U);
  const std::vector<LocationTally> apart = {tally({{"a", "1"}, {"b", "2"}}),
                                            tally({{"b", "1"}, {"a", "2"}})};
  EXPECT_EQ(seat(apart, {1, 1}, {"a", "3"}), 0U);
}

}  // namespace
}  // namespace swarmline
