#include "base/ip_range.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

bool is_in(const char* range, const char* host) {
  return IpRange::parse(range).value().contains(host);
}

TEST(IpRange, HasTheAddressesWithItsFirstBits) {
  EXPECT_TRUE(is_in("10.0.0.0/8", "10.255.1.2"));
  EXPECT_FALSE(is_in("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(is_in("10.1.16.0/20", "10.1.31.255"));
  EXPECT_FALSE(is_in("10.1.16.0/20", "10.1.32.0"));
  EXPECT_TRUE(is_in("0.0.0.0/0", "1.2.3.4"));
  EXPECT_FALSE(is_in("0.0.0.0/0", "fd00::1"));
  EXPECT_TRUE(is_in("192.168.1.7", "192.168.1.7"));
  EXPECT_FALSE(is_in("192.168.1.7", "192.168.1.6"));
  EXPECT_TRUE(is_in("fd00::/8", "fd12::1"));
  EXPECT_FALSE(is_in("fd00::/8", "fe80::1"));
  EXPECT_TRUE(is_in("10.0.0.0/8", "::ffff:10.1.2.3"));
  EXPECT_FALSE(is_in("10.0.0.0/8", "host.example"));
}

TEST(IpRange, OtherTextsAreNone) {
  for (const char* text : {"", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "10.0.0.0/-1", "10.0.0.0/8x",
                           "fd00::/129", "example.org", "/8", "10.0.0.0/8/8"}) {
    const auto range = IpRange::parse(text);
    ASSERT_FALSE(range.has_value()) << text;
    EXPECT_EQ(range.error().code, ErrorCode::kUserMistake);
  }
}

}  // namespace
}  // namespace swarmline
