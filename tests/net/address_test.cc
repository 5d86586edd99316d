#include <gtest/gtest.h>

#include "engine/net/network.h"

namespace swarmline {
namespace {

TEST(Address, ReadsWhatItPrints) {
  for (const std::string text :
       {"127.0.0.1:7700", "[::1]:7700", "localhost:0", "node-3.example.org:65535", "sim:12"}) {
    const Result<Address> address = parse_address(text);
    ASSERT_TRUE(address.has_value()) << text;
    EXPECT_EQ(to_string(*address), text);
  }
  EXPECT_EQ(parse_address("[::1]:7700")->host, "::1");
}

TEST(Address, RefusesEverythingElseWithASentence) {
  for (const std::string text :
       {"", "localhost", ":80", "[]:80", "host:", "host:-1", "host:65536", "host:80x", "host: 80",
        "::1:80", "fe80::1", "host:99999999999999999999"}) {
    const Result<Address> address = parse_address(text);
    ASSERT_FALSE(address.has_value()) << text;
    EXPECT_EQ(address.error().code, ErrorCode::kUserMistake);
    EXPECT_NE(address.error().what.find("\"" + text + "\""), std::string::npos);
    EXPECT_NE(address.error().what.find("expected host:port"), std::string::npos);
  }
}

}  // namespace
}  // namespace swarmline
