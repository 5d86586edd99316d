#include "node/descriptors.h"

#include <sys/resource.h>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

rlimit limit_now() {
  rlimit limit{};
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  return limit;
}

TEST(Descriptors, AreRaisedToTheHardLimit) {
  const rlimit before = limit_now();
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(raise_descriptors(), before.rlim_max);
  EXPECT_EQ(limit_now().rlim_cur, before.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Descriptors, ACoordinatorNeedsOneForEachPeerOfItsRun) {
  RunConfig config;
  config.pipeline.peers = {600, 400};
  EXPECT_TRUE(enough_descriptors(config, 1000 + kDescriptorsBesides).has_value());
  const auto refused = enough_descriptors(config, 1000 + kDescriptorsBesides - 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(refused.error().what.find("1000 peers take a coordinator that may have 1192 files and "
                                      "connections open; this one may have 1191"),
            std::string::npos)
      << refused.error().what;
}

}  // namespace
}  // namespace swarmline
