#include "node/restart_policy.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr RestartPolicy::Limits kLimits{
    .attempts_max = 4, .soon = 30s, .pause_first = 500ms, .pause_max = 1500ms};

TEST(RestartPolicy, WaitsLongerAfterEachShortLifeAndGivesUp) {
  RestartPolicy policy(kLimits);
  EXPECT_EQ(policy.died(1s), 0ms);
  EXPECT_EQ(policy.died(1s), 500ms);
  EXPECT_EQ(policy.died(29s), 1s);
  EXPECT_EQ(policy.died(0s), 1500ms) << "not above the longest pause";
  EXPECT_EQ(policy.died(0s), std::nullopt);
  EXPECT_EQ(policy.short_lives(), 5);
}

TEST(RestartPolicy, ALongLifeBeginsTheCountAnew) {
  RestartPolicy policy(kLimits);
  for (int i = 0; i < 4; ++i) policy.died(1s);
  EXPECT_EQ(policy.died(30s), 0ms);
  EXPECT_EQ(policy.short_lives(), 0);
  for (int life = 0; life < 100; ++life) EXPECT_EQ(policy.died(1h), 0ms) << "for ever, if it lives";
}

TEST(RestartPolicy, NoneAtAll) {
  RestartPolicy policy({.attempts_max = 0});
  EXPECT_EQ(policy.died(1h), std::nullopt);
}

}  // namespace
}  // namespace swarmline
