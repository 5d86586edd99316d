#include "engine/checkpoint/sha256.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

// FIPS 180-2, appendix B.
TEST(Sha256Test, StandardVectors) {
  EXPECT_EQ(sha256_hex(as_bytes("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(as_bytes("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(as_bytes(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, PiecesMakeTheWhole) {
  Sha256 hash;
  hash.update(as_bytes("a"));
  hash.update(as_bytes(""));
  Sha256 moved = std::move(hash);
  moved.update(as_bytes("bc"));
  EXPECT_EQ(moved.finish_hex(), sha256_hex(as_bytes("abc")));
}

}  // namespace
}  // namespace swarmline
