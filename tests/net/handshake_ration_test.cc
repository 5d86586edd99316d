// How many failed handshakes an address may cost.
#include "engine/net/tcp/handshake_ration.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr HandshakeRation::Bounds kBounds{.burst = 3, .per_second = 2, .hosts_max = 4};

Instant at(Duration since) {
  return Instant{} + since;
}

TEST(HandshakeRation, AnAddressHasABurstAndThenSoManyASecond) {
  HandshakeRation ration(kBounds);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(ration.allows("a", at(1s)));
    ration.charge("a", at(1s));
  }
  EXPECT_FALSE(ration.allows("a", at(1s)));
  EXPECT_FALSE(ration.allows("a", at(1400ms)));
  EXPECT_TRUE(ration.allows("b", at(1s))) << "another address has its own";
  EXPECT_TRUE(ration.allows("a", at(1600ms)));
  ration.charge("a", at(1600ms));
  EXPECT_FALSE(ration.allows("a", at(1900ms)));
  EXPECT_TRUE(ration.allows("a", at(60s)));
  for (int i = 0; i < 3; ++i) ration.charge("a", at(60s));
  EXPECT_FALSE(ration.allows("a", at(60s))) << "no more than a burst is saved up";
}

TEST(HandshakeRation, WhatSucceedsCostsNothing) {
  HandshakeRation ration(kBounds);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(ration.allows("crowd", at(1s)));
  EXPECT_EQ(ration.hosts(), 0U);
}

TEST(HandshakeRation, RemembersSoManyAddressesAndThoseThatFailMost) {
  HandshakeRation ration(kBounds);
  for (int i = 0; i < 3; ++i) ration.charge("worst", at(1s));
  for (int i = 0; i < 100; ++i) {
    ration.charge("host" + std::to_string(i), at(1s));
    ASSERT_LE(ration.hosts(), kBounds.hosts_max);
  }
  EXPECT_FALSE(ration.allows("worst", at(1s)));
}

}  // namespace
}  // namespace swarmline
