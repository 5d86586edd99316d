#include "engine/net/bulk/bulk_trial.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// Each trial takes as long as its way does in that round, and in all after the last one named.
std::optional<BulkVerdict> tried(const std::vector<Duration>& frames,
                                 const std::vector<Duration>& link) {
  BulkTrials trials;
  Instant now{};
  for (std::uint64_t number = 0; const auto next = trials.next(); ++number) {
    EXPECT_EQ(next->number, number);
    EXPECT_EQ(next->way, number % 2 == 0 ? PayloadWay::kFrames : PayloadWay::kLink);
    trials.left(now);
    EXPECT_FALSE(trials.next().has_value()) << "one at a time";
    const std::vector<Duration>& times = number % 2 == 0 ? frames : link;
    now += times.at(std::min<std::size_t>(number / 2, times.size() - 1));
    EXPECT_TRUE(trials.answered(number, now).has_value());
  }
  return trials.verdict();
}

TEST(BulkTrials, TheBestTimeOfEachWayDecides) {
  const auto verdict = tried({50ms, 10ms, 50ms}, {100ms, 100ms, 5ms, 100ms});
  ASSERT_TRUE(verdict && verdict->is_measured);
  EXPECT_EQ(verdict->way, PayloadWay::kLink);
  EXPECT_DOUBLE_EQ(verdict->frames_rate, 100.0 * kMiB);
  EXPECT_DOUBLE_EQ(verdict->link_rate, 200.0 * kMiB);
  EXPECT_EQ(tried({50ms, 3ms, 50ms}, {100ms, 100ms, 5ms})->way, PayloadWay::kFrames);
}

TEST(BulkTrials, FramesHaveToBeClearlyFaster) {
  EXPECT_EQ(tried({100ms}, {124ms})->way, PayloadWay::kLink);
  EXPECT_EQ(tried({100ms}, {126ms})->way, PayloadWay::kFrames);
}

TEST(BulkTrials, AnAnswerInNoTimeIsOne) {
  const auto verdict = tried({0ms}, {0ms});
  ASSERT_TRUE(verdict && verdict->is_measured);
  EXPECT_EQ(verdict->way, PayloadWay::kLink);
}

TEST(BulkTrials, AnAnswerToNoTrialIsNone) {
  const auto is_none = [](BulkTrials& trials, std::uint64_t number) {
    const auto taken = trials.answered(number, Instant{} + 1s);
    return !taken && taken.error().code == ErrorCode::kCorrupt;
  };
  BulkTrials trials;
  EXPECT_TRUE(is_none(trials, 0));
  trials.left(Instant{});
  EXPECT_TRUE(is_none(trials, 1));
  EXPECT_TRUE(is_none(trials, ~std::uint64_t{0}));
  EXPECT_TRUE(trials.answered(0, Instant{} + 1s).has_value());
  EXPECT_TRUE(is_none(trials, 0)) << "twice";
}

// After `sent` trials, the last of which is not answered, there is no time any more.
BulkVerdict given_up_after(std::uint64_t sent) {
  BulkTrials trials;
  for (std::uint64_t number = 0; number < sent; ++number) {
    trials.left(Instant{});
    if (number + 1 < sent) EXPECT_TRUE(trials.answered(number, Instant{} + 1s).has_value());
  }
  trials.give_up();
  const BulkVerdict verdict = *trials.verdict();
  EXPECT_FALSE(verdict.is_measured);
  EXPECT_FALSE(trials.next().has_value());
  if (sent > 0) {  // too late, and it changes nothing
    EXPECT_TRUE(trials.answered(sent - 1, Instant{} + 2s).has_value());
    EXPECT_FALSE(trials.answered(sent - 1, Instant{} + 2s).has_value());
  }
  EXPECT_EQ(trials.verdict()->way, verdict.way);
  return verdict;
}

TEST(BulkTrials, WhereThereIsNoTimeTheWayThatDoesNotAnswerLoses) {
  EXPECT_EQ(given_up_after(0).way, PayloadWay::kLink);
  EXPECT_EQ(given_up_after(1).way, PayloadWay::kLink);
  EXPECT_EQ(given_up_after(2).way, PayloadWay::kFrames);
  EXPECT_EQ(given_up_after(3).way, PayloadWay::kLink);
}

// ---- A link that has to be faster ---------------------------------------------------------------

// What a trial takes by its way and its bytes.
using TakesTime = Duration (*)(PayloadWay way, double mib);
constexpr BulkTrialRules kFaster{.must_be_faster = true};

struct Tried {
  BulkVerdict verdict;
  std::vector<std::uint64_t> mib;  // of each round
};
Tried tried_faster(TakesTime takes) {
  BulkTrials trials(kFaster);
  Instant now{};
  Tried seen;
  while (const auto next = trials.next()) {
    const std::uint64_t mib = next->bytes / kMiB;
    if (next->way == PayloadWay::kFrames) seen.mib.push_back(mib);
    EXPECT_EQ(seen.mib.back(), mib) << "both ways of a round are alike";
    trials.left(now);
    now += takes(next->way, static_cast<double>(mib));
    EXPECT_TRUE(trials.answered(next->number, now).has_value());
  }
  seen.verdict = *trials.verdict();
  EXPECT_TRUE(seen.verdict.is_measured);
  return seen;
}

TEST(BulkTrials, ALineThatOneConnectionFillsIsTriedTwice) {
  const Tried seen = tried_faster([](PayloadWay, double mib) { return from_seconds(0.1 * mib); });
  EXPECT_EQ(seen.mib, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(seen.verdict.way, PayloadWay::kFrames);
}

// 100 ms there and back, and a window of 4 MiB for each connection.
TEST(BulkTrials, AWindowIsSeenOnceMoreThanItIsOnTheWay) {
  const Tried seen = tried_faster([](PayloadWay way, double mib) {
    const double windows = way == PayloadWay::kFrames ? std::max(1.0, mib / 4) : 1.0;
    return from_seconds(0.1 * windows + 0.005 * mib);
  });
  EXPECT_EQ(seen.mib, (std::vector<std::uint64_t>{1, 2, 4, 8, 8}));
  EXPECT_EQ(seen.verdict.way, PayloadWay::kLink);
  EXPECT_GT(seen.verdict.link_rate, 1.5 * seen.verdict.frames_rate);
}

TEST(BulkTrials, ALinkThatHasToBeFasterIsLeftUnlessItClearlyIs) {
  const auto link_takes = [](double times) {
    BulkTrials trials(kFaster);
    Instant now{};
    while (const auto next = trials.next()) {
      trials.left(now);
      now += from_seconds(static_cast<double>(next->bytes) / 1e8 *
                          (next->way == PayloadWay::kLink ? times : 1.0));
      EXPECT_TRUE(trials.answered(next->number, now).has_value());
    }
    return trials.verdict()->way;
  };
  EXPECT_EQ(link_takes(1.0), PayloadWay::kFrames);
  EXPECT_EQ(link_takes(0.81), PayloadWay::kFrames);
  EXPECT_EQ(link_takes(0.79), PayloadWay::kLink);
}

// After so many trials, of which the last is not answered, there is no time any more.
TEST(BulkTrials, WithoutTimeALinkThatHasToBeFasterIsLeft) {
  const auto given_up = [](std::uint64_t sent, Duration link) {
    BulkTrials trials(kFaster);
    Instant now{};
    for (std::uint64_t number = 0; number < sent; ++number) {
      trials.left(now);
      if (number + 1 == sent) break;
      now += number % 2 == 0 ? 1s : link;
      EXPECT_TRUE(trials.answered(number, now).has_value());
    }
    trials.give_up();
    return trials.verdict()->way;
  };
  for (const std::uint64_t sent : {0, 1, 2, 4}) EXPECT_EQ(given_up(sent, 1ms), PayloadWay::kFrames);
  EXPECT_EQ(given_up(3, 1ms), PayloadWay::kLink) << "it was faster in the round that was answered";
  EXPECT_EQ(given_up(3, 900ms), PayloadWay::kFrames);
}

TEST(BulkTrials, AreTakenInTurnWithinTheirSizesAndNotForEver) {
  BulkTrialsTaken taken;
  EXPECT_FALSE(taken.take(1, kBulkTrialBytes).has_value());
  EXPECT_FALSE(taken.take(0, kBulkTrialBytes - 1).has_value());
  EXPECT_FALSE(taken.take(0, kBulkTrialBytesMax + 1).has_value());
  for (std::uint64_t number = 0; number < kBulkTrialsMax; ++number)
    EXPECT_TRUE(taken.take(number, kBulkTrialBytes).has_value());
  EXPECT_FALSE(taken.take(kBulkTrialsMax - 1, kBulkTrialBytes).has_value());
  const auto beyond = taken.take(kBulkTrialsMax, kBulkTrialBytes);
  ASSERT_FALSE(beyond.has_value());
  EXPECT_EQ(beyond.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace swarmline
