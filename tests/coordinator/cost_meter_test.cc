// What a run's machines cost, by hand.
#include "pipeline/coordinator/run/cost_meter.h"

#include <limits>

#include <gtest/gtest.h>

#include "pipeline/protocol/money_text.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Meter : public ::testing::Test {
 protected:
  void pass(Duration time) { meter.advance(now += time); }
  void rates(double serving, double joining, bool trains) {
    meter.set_rates({.serving = serving, .joining = joining, .trains = trains});
  }

  MoneySection money;
  CostMeter meter{money};
  Instant now{1h};
};

TEST_F(Meter, WithoutAPriceNothingIsKnown) {
  pass(1h);
  rates(0, 0, true);
  pass(1h);
  EXPECT_FALSE(meter.is_known());
  EXPECT_FALSE(meter.status(now, 10, 1000));
}

TEST_F(Meter, HoursCountFromWhenAMemberIsThere) {
  money.coordinator_price = 0.5;
  pass(5h);  // before it looked first nothing had been paid
  EXPECT_EQ(meter.totals().total(), 0);
  rates(2, 1, false);
  pass(2h);
  EXPECT_DOUBLE_EQ(meter.totals().machines, 6);
  EXPECT_DOUBLE_EQ(meter.totals().coordinator, 1);
  EXPECT_DOUBLE_EQ(meter.totals().waiting, 7) << "nobody trained";
  rates(3, 1, true);
  pass(1h);
  EXPECT_DOUBLE_EQ(meter.totals().machines, 10);
  EXPECT_DOUBLE_EQ(meter.totals().waiting, 7);
  EXPECT_DOUBLE_EQ(meter.totals().joining, 1);
  EXPECT_DOUBLE_EQ(meter.per_hour(), 4.5);
}

TEST_F(Meter, StatusSaysWhatIsPaidSinceTheLastEventToo) {
  pass(1h);
  rates(2, 0, true);
  money.currency = "EUR";
  money.budget = 100;
  const auto status = meter.status(now + 30min, 5, 1'000'000);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->currency, "EUR");
  EXPECT_EQ(status->budget, 100);
  EXPECT_DOUBLE_EQ(status->total, 1);
  EXPECT_DOUBLE_EQ(*status->per_step, 0.2);
  EXPECT_DOUBLE_EQ(*status->per_billion_tokens, 200);
  EXPECT_EQ(meter.totals().total(), 0) << "it has only been looked at";
  EXPECT_FALSE(meter.status(now, 0, 1'000'000)->per_step) << "there was no step";
}

TEST_F(Meter, IdleIsNoMoreThanWhatWasPaid) {
  pass(1h);
  rates(2, 0, true);
  pass(1h);
  meter.on_commit(false, 0.5, 3600);
  EXPECT_DOUBLE_EQ(meter.totals().idle, 0.5);
  pass(1h);
  meter.on_commit(false, 50, 3600);
  EXPECT_DOUBLE_EQ(meter.totals().idle, 2.5);
}

// No cent is in two parts: of a step that is computed again nothing is idle.
TEST_F(Meter, WhatIsLostAndComputedAgainIsNamed) {
  pass(1h);
  rates(2, 0, true);
  pass(1h);
  meter.on_commit(false, 0, 3600);
  pass(1h);
  meter.on_rollback();
  EXPECT_DOUBLE_EQ(meter.totals().again, 2) << "the open step";
  meter.on_commit(true, 1, 3600);
  EXPECT_EQ(meter.totals().steps_again, 1U);
  EXPECT_DOUBLE_EQ(meter.totals().again, 2);
  pass(1h);
  meter.on_commit(true, 1, 3600);
  EXPECT_DOUBLE_EQ(meter.totals().again, 4);
  EXPECT_EQ(meter.totals().idle, 0);
}

TEST_F(Meter, BytesCostWhatTheirSenderSaysOrTheRun) {
  money.egress_price = 0.1;
  meter.sent(2'000'000'000, 0);
  EXPECT_DOUBLE_EQ(meter.totals().egress, 0.2);
  meter.sent(1'000'000'000, 0.5);
  EXPECT_DOUBLE_EQ(meter.totals().egress, 0.7);
  meter.state_fetched(1'000'000'000, 0.3, true);
  meter.state_fetched(1'000'000'000, 0.3, false);
  EXPECT_DOUBLE_EQ(meter.totals().egress, 1.3);
  EXPECT_DOUBLE_EQ(meter.totals().fetched, 0.6);
  EXPECT_EQ(meter.totals().shadow_bytes, 1'000'000'000U);
  EXPECT_EQ(meter.totals().joiner_bytes, 1'000'000'000U);
  EXPECT_EQ(meter.totals().egress_bytes, 5'000'000'000U);
  meter.sent(std::numeric_limits<std::uint64_t>::max(), 0);
  EXPECT_EQ(meter.totals().egress_bytes, 5'000'000'000U + CostMeter::kSentBytesMax)
      << "no report is believed to have sent more";
}

TEST_F(Meter, AnHourCostsWhatIsSentAsInTheLastStepsToo) {
  money.egress_price = 1;
  rates(2, 0, true);
  meter.sent(1'000'000'000, 0);
  meter.on_commit(false, 0, 1800);
  EXPECT_DOUBLE_EQ(meter.per_hour(), 4);
  rates(2, 0, false);
  EXPECT_DOUBLE_EQ(meter.per_hour(), 2) << "nothing is sent";
}

TEST_F(Meter, TheBudgetIsSpentAndSaysWhatToChange) {
  money.budget = 20;
  pass(1h);
  rates(10, 0, true);
  pass(1h);
  EXPECT_FALSE(meter.take_warning(0));
  EXPECT_FALSE(meter.spent(0));
  pass(48min);
  EXPECT_EQ(meter.take_warning(0),
            "90 % of the budget of 20.00 USD is spent; the run ends with a checkpoint when all of "
            "it is");
  EXPECT_FALSE(meter.take_warning(0)) << "it is said once";
  EXPECT_FALSE(meter.spent(0));
  pass(12min);
  EXPECT_EQ(meter.spent(0), "the budget of 20.00 USD is spent: the run has cost 20.00 USD");
  EXPECT_EQ(meter.refusal(0),
            "the budget of 20.00 USD is spent: the run has cost 20.00 USD; raise money.budget to "
            "go on, or set it to 0 for no such bound");
}

TEST_F(Meter, HoursAreABudgetWithoutAnyPrice) {
  money.budget_hours = 2;
  EXPECT_FALSE(meter.spent(7199));
  EXPECT_FALSE(meter.take_warning(6000));
  EXPECT_TRUE(meter.take_warning(6600));
  EXPECT_EQ(meter.spent(7200), "the budget of 2 hours is spent: the run has trained for 2 hours");
  EXPECT_TRUE(meter.refusal(7200)->ends_with(
      "raise money.budget_hours to go on, or set it to 0 for no such bound"));
}

TEST_F(Meter, GoesOnWithWhatCoordinatorsBeforeHaveCounted) {
  CostTotals before{.since_version = 3, .machines = 5, .egress = 1};
  meter.restore(before);
  pass(1h);
  rates(2, 0, true);
  pass(1h);
  EXPECT_DOUBLE_EQ(meter.totals().total(), 8);
  EXPECT_EQ(meter.status(now, 7, 1)->since_step, 3U);
  EXPECT_DOUBLE_EQ(*meter.status(now, 7, 1)->per_step, 2) << "of the steps that are counted";
  meter.on_era(1);
  EXPECT_EQ(meter.totals().since_version, 1U) << "those after it are computed again";
}

TEST(MoneyText, IsReadByPeople) {
  const std::pair<double, const char*> amounts[] = {{0, "0"},
                                                    {0.0000468123, "0.0000468"},
                                                    {0.25, "0.25"},
                                                    {0.12345, "0.123"},
                                                    {0.9999, "1"},
                                                    {1, "1.00"},
                                                    {1234567.891, "1,234,567.89"},
                                                    {-0.004, "-0.004"},
                                                    {1e-15, "0"}};
  for (const auto& [amount, text] : amounts) EXPECT_EQ(money_digits(amount), text);
  EXPECT_EQ(money_text(0.00005, "USD"), "0.00005 USD");
}

TEST(Price, NonsenseIsNotBelieved) {
  EXPECT_TRUE(price_is_believed(0));
  EXPECT_TRUE(price_is_believed(kPriceMax));
  for (const double wrong : {-0.1, 2 * kPriceMax, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()})
    EXPECT_FALSE(price_is_believed(wrong)) << wrong;
}

}  // namespace
}  // namespace swarmline
