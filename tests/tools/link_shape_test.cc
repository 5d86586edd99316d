#include "tools/link_proxy/link_shape.h"

#include <vector>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

using namespace std::chrono_literals;

Instant at(Duration d) {
  return Instant(d);
}

TEST(LinkShape, IsReadFromWords) {
  const auto shape = parse_link_shape("rate=200M, delay=20ms jitter=5ms corrupt=1e-6");
  ASSERT_TRUE(shape.has_value());
  EXPECT_EQ(*shape,
            (LinkShape{.bits_per_second = 2e8, .delay = 20ms, .jitter = 5ms, .corrupt = 1e-6}));
  const auto changed = parse_link_shape("delay=0", *shape);
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->delay, Duration{});
  EXPECT_EQ(changed->jitter, 5ms);
}

TEST(LinkShape, PrintsWhatItReads) {
  const LinkShape shape{.bits_per_second = 1.5e6, .delay = 250us, .jitter = 1s, .corrupt = 0.25};
  EXPECT_EQ(*parse_link_shape(to_string(shape)), shape);
  EXPECT_EQ(*parse_link_shape(to_string(LinkShape{})), LinkShape{});
}

TEST(LinkShape, NamesTheWordItDoesNotKnow) {
  for (const char* text : {"rate=fast", "delay=20", "delay=-1ms", "corrupt=2", "colour=red", "rate",
                           "delay=1e9s", "rate=inf"}) {
    const auto shape = parse_link_shape(std::string("rate=1M ") + text);
    ASSERT_FALSE(shape.has_value()) << text;
    EXPECT_EQ(shape.error().code, ErrorCode::kUserMistake);
    EXPECT_NE(shape.error().what.find(text), std::string::npos) << shape.error().what;
  }
}

TEST(LinkLine, SerialisesAtItsRateAndDelaysEachPiece) {
  LinkLine line(1);
  line.set({.bits_per_second = 8e6, .delay = 10ms, .jitter = {}, .corrupt = 0});  // 1 byte a us
  EXPECT_EQ(line.arrival(at(1s), 1000), at(1s + 1ms + 10ms));
  EXPECT_EQ(line.arrival(at(1s), 1000), at(1s + 2ms + 10ms));
  EXPECT_EQ(line.arrival(at(5s), 500), at(5s + 500us + 10ms));  // an idle line saves up nothing
}

TEST(LinkLine, JitterStaysWithinItsBoundsAndKeepsTheOrder) {
  LinkLine line(7);
  line.set({.bits_per_second = 0, .delay = 100ms, .jitter = 50ms, .corrupt = 0});
  Instant last{};
  Duration least = 1s, most{};
  for (int i = 0; i < 1000; ++i) {
    const Instant now = at(i * 1s);
    const Instant arrival = line.arrival(now, 100);
    EXPECT_GE(arrival, last);
    last = arrival;
    least = std::min(least, arrival - now);
    most = std::max(most, arrival - now);
  }
  EXPECT_GE(least, 50ms);
  EXPECT_LT(least, 52ms);
  EXPECT_LE(most, 150ms);
  EXPECT_GT(most, 148ms);
}

TEST(LinkLine, FlipsTheShareOfBytesThatWasAskedFor) {
  LinkLine line(3);
  std::vector<std::byte> bytes(1'000'000);
  EXPECT_EQ(line.corrupt(bytes), 0U);
  line.set({.bits_per_second = 0, .delay = {}, .jitter = {}, .corrupt = 1e-3});
  const std::uint64_t flipped = line.corrupt(bytes);
  std::uint64_t changed = 0;
  for (const std::byte b : bytes) changed += b != std::byte{0};
  EXPECT_EQ(flipped, changed);
  EXPECT_GT(flipped, 850U);  // 1000 +- 4.7 sigma
  EXPECT_LT(flipped, 1150U);
  line.set({.bits_per_second = 0, .delay = {}, .jitter = {}, .corrupt = 1});
  std::vector<std::byte> all(100);
  EXPECT_EQ(line.corrupt(all), 100U);
}

TEST(LinkLine, HoldsTwiceWhatIsInFlight) {
  LinkLine line(1);
  EXPECT_EQ(line.window_bytes(), LinkLine::kWindowBytesMin);
  line.set({.bits_per_second = 1e9, .delay = 200ms, .jitter = {}, .corrupt = 0});
  EXPECT_EQ(line.window_bytes(), 50'000'000U);
  line.set({.bits_per_second = 1e12, .delay = 1s, .jitter = {}, .corrupt = 0});
  EXPECT_EQ(line.window_bytes(), LinkLine::kWindowBytesMax);
}

}  // namespace
}  // namespace swarmline
