#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/line_rate.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("plain text, 100 %", 100), "plain text, 100 %");
  EXPECT_EQ(printable("\x1b[2J", 100), "\\x1b[2J");
  EXPECT_EQ(printable("a\nb\tc\r\x7f", 100), "a\\x0ab\\x09c\\x0d\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1), 100), "\\x00");
}

TEST(Printable, KeepsOtherScriptsAndNotWhatHidesInThem) {
  EXPECT_EQ(printable("größe 机器 →", 100), "größe 机器 →");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J",
                      100),
            "\\xc2\\x9b2J")
      << "an escape in one character";
  EXPECT_EQ(printable("\xe2\x80\xae", 100), "\\xe2\\x80\\xae") << "turns the rest around";
  EXPECT_EQ(printable("\xff\xc3", 100), "\\xff\\xc3") << "no UTF-8";
  EXPECT_EQ(printable("\xc0\x9b", 100), "\\xc0\\x9b") << "an escape, written too long";
  EXPECT_EQ(printable("\xed\xa0\x80", 100), "\\xed\\xa0\\x80") << "half a pair";
}

TEST(Printable, HasABound) {
  EXPECT_EQ(printable(std::string(1000, 'x'), 10), std::string(10, 'x'));
  EXPECT_EQ(printable(std::string(1000, '\x01'), 10).size(), 10U);
}

TEST(Printable, LinesOfOnesOwnKeepTheirEnds) {
  EXPECT_EQ(printable_lines("one\n\ttwo\x1b\n"), "one\n\ttwo\\x1b\n");
}

TEST(Printable, IsPrintableIsAsciiAlone) {
  EXPECT_TRUE(is_printable("gpu-7.example.org:7400 [::1]"));
  EXPECT_TRUE(is_printable(""));
  EXPECT_FALSE(is_printable("é"));
  EXPECT_FALSE(is_printable("a\n"));
}

TEST(LineRate, SaysHowManyWereNotSaid) {
  LineRate rate;
  const Instant start{};
  EXPECT_EQ(rate.happened(start), 1U);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(rate.happened(start + 100ms * i), 0U);
  EXPECT_EQ(rate.happened(start + 1s), 10U);
  EXPECT_EQ(rate.happened(start + 1s), 0U);
}

TEST(LineRate, SaysSoManyEachPeriod) {
  LineRate rate(2);
  const Instant start{};
  EXPECT_EQ(rate.happened(start), 1U);
  EXPECT_EQ(rate.happened(start), 1U);
  EXPECT_EQ(rate.happened(start + 500ms), 0U);
  EXPECT_EQ(rate.happened(start + 1s), 2U);
  EXPECT_EQ(rate.happened(start + 1s), 1U);
  EXPECT_EQ(rate.happened(start + 1s), 0U);
}

}  // namespace
}  // namespace swarmline
