#include "base/unit_suffix.h"

#include <gtest/gtest.h>

namespace swarmline {
namespace {

TEST(UnitSuffix, LettersArePowersOfTheStep) {
  EXPECT_EQ(number_with_suffix("16G", 1024), 16.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(number_with_suffix("100M", 1000), 100e6);
  EXPECT_EQ(number_with_suffix("1.5k", 1000), 1500);
  EXPECT_EQ(number_with_suffix("2t", 1024), 2.0 * 1024 * 1024 * 1024 * 1024);
  EXPECT_EQ(number_with_suffix("4096", 1024), 4096);
  EXPECT_EQ(number_with_suffix("1e9", 1000), 1e9);
}

TEST(UnitSuffix, AnythingElseIsNoNumber) {
  for (const char* text : {"", "G", "16X", "16GB", "16 G", "-1G", "-1", "nan", "inf", "infG",
                           "1e400", "1e308T", "1G1"})
    EXPECT_FALSE(number_with_suffix(text, 1024)) << text;
}

}  // namespace
}  // namespace swarmline
