// Which runs have links between keys.
#include "engine/config/link_security.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

bool wants(const char* listen, bool insecure = false, bool loopback = false) {
  RunConfig config;
  config.net.listen = listen;
  config.security = {.insecure = insecure, .loopback = loopback};
  return wants_keys(config);
}

TEST(LinkSecurity, WithinThisMachineNeedsNoKeysAndBeyondItDoes) {
  for (const char* listen : {"127.0.0.1:0", "127.1.2.3:7400", "localhost:1", "[::1]:7400"}) {
    EXPECT_FALSE(wants(listen)) << listen;
    EXPECT_TRUE(wants(listen, false, true)) << listen;
  }
  for (const char* listen : {"0.0.0.0:7400", "[::]:7400", "192.0.2.1:1", "node-1:7400",
                             "127.evil.example:1", "localhost.evil.example:1", "[::2]:1"}) {
    EXPECT_TRUE(wants(listen)) << listen;
    EXPECT_FALSE(wants(listen, true)) << listen;
    EXPECT_TRUE(wants(listen, true, true)) << listen;
  }
}

}  // namespace
}  // namespace swarmline
