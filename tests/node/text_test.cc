#include "console/text.h"

#include <vector>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

TEST(Text, NumbersForPeople) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1638400), "1,638,400");
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(65536), "64.0 KiB");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1638400), "1.6 M");
  EXPECT_EQ(human_seconds(0.4), "0s");
  EXPECT_EQ(human_seconds(59.6), "1m 00s");
  EXPECT_EQ(human_seconds(161), "2m 41s");
  EXPECT_EQ(human_seconds(3 * 3600 + 5 * 60), "3h 05m");
  EXPECT_EQ(human_seconds(5 * 86400), "5d 00h");
}

TEST(Text, SparklineSpansItsRange) {
  const std::vector<double> falling = {8, 7, 6, 5, 4, 3, 2, 1};
  EXPECT_EQ(sparkline(falling, 80, true), "█▇▆▅▄▃▂▁");
  EXPECT_EQ(display_columns(sparkline(falling, 3, true)), 3U);
  EXPECT_EQ(sparkline(falling, 3, false).size(), 3U);
  const std::vector<double> flat = {2, 2};
  EXPECT_EQ(sparkline(flat, 80, true), "▁▁");
  EXPECT_EQ(sparkline({}, 80, true), "");
}

TEST(Text, ProgressBarFills) {
  EXPECT_EQ(progress_bar(0, 4, false), "----");
  EXPECT_EQ(progress_bar(0.5, 4, false), "##--");
  EXPECT_EQ(progress_bar(1, 4, false), "####");
  EXPECT_EQ(progress_bar(7, 4, true), "━━━━");
}

TEST(Text, LinesAreBrokenBetweenWords) {
  EXPECT_EQ(wrap_columns("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrap_columns("one two three", 6), (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(wrap_columns("abcdefgh ij", 4), (std::vector<std::string>{"abcd", "ij"}));
  EXPECT_TRUE(wrap_columns("  ", 4).empty());
}

TEST(Text, AWordForAShellIsQuotedWhereItMustBe) {
  EXPECT_EQ(shell_word("runs/a-1.toml"), "runs/a-1.toml");
  EXPECT_EQ(shell_word("my runs/a"), "'my runs/a'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Text, ColumnsLeaveEscapeSequencesOut) {
  const std::string text = "\x1b[32m●\x1b[0m peer";
  EXPECT_EQ(display_columns(text), 6U);
  EXPECT_EQ(cut_columns(text, 3), "\x1b[32m●\x1b[0m p");
  EXPECT_EQ(cut_columns("abc", 9), "abc");
  EXPECT_EQ(cut_columns("abc", 0), "");
}

}  // namespace
}  // namespace swarmline
