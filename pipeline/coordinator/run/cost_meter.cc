#include "pipeline/coordinator/run/cost_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/hours.h"
#include "pipeline/protocol/money_text.h"

namespace swarmline {

namespace {

constexpr double kBillion = 1e9;

double price_of(std::uint64_t bytes, double price) {
  return static_cast<double>(bytes) / kBytesPerGb * price;
}

}  // namespace

bool price_is_believed(double price) {
  return std::isfinite(price) && price >= 0 && price <= kPriceMax;
}

void CostMeter::on_era(std::uint64_t version) {
  totals_.since_version = std::min(totals_.since_version, version);
}

void CostMeter::advance(Instant now) {
  const double hours = counted_to_ ? to_seconds(now - *counted_to_) / kSecondsPerHour : 0;
  counted_to_ = now;
  const double machines = (rates_.serving + rates_.joining) * hours;
  const double coordinator = money_.coordinator_price * hours;
  totals_.machines += machines;
  totals_.coordinator += coordinator;
  if (rates_.trains) {
    totals_.joining += rates_.joining * hours;
    open_ += rates_.serving * hours;
  } else {
    totals_.waiting += machines + coordinator;
  }
}

void CostMeter::sent(std::uint64_t bytes, double price) {
  bytes = std::min(bytes, kSentBytesMax);
  totals_.egress_bytes += bytes;
  totals_.egress += price_of(bytes, price_of_gb(price));
}

void CostMeter::state_fetched(std::uint64_t bytes, double price, bool by_shadow) {
  bytes = std::min(bytes, kSentBytesMax);
  sent(bytes, price);
  totals_.fetched += price_of(bytes, price_of_gb(price));
  (by_shadow ? totals_.shadow_bytes : totals_.joiner_bytes) += bytes;
}

void CostMeter::on_commit(bool again, double idle, double seconds) {
  if (again) {
    totals_.again += open_;
    ++totals_.steps_again;
  } else {
    totals_.idle += std::min(idle, open_);
  }
  open_ = 0;
  recent_.push_back({.seconds = seconds, .egress = totals_.egress - egress_then_});
  egress_then_ = totals_.egress;
  if (recent_.size() > kWindowSteps) recent_.pop_front();
}

void CostMeter::on_rollback() {
  totals_.again += std::exchange(open_, 0);
}

bool CostMeter::is_known() const {
  return totals_.total() > 0 || rates_.serving + rates_.joining > 0 ||
         money_.coordinator_price > 0 || money_.egress_price > 0;
}

double CostMeter::per_hour() const {
  double seconds = 0, egress = 0;
  for (const Recent& step : recent_) {
    seconds += step.seconds;
    egress += step.egress;
  }
  const double of_bytes = rates_.trains && seconds > 0 ? egress / seconds * kSecondsPerHour : 0;
  return rates_.serving + rates_.joining + money_.coordinator_price + of_bytes;
}

std::optional<CostStatus> CostMeter::status(Instant now, std::uint64_t version,
                                            double tokens_per_step) const {
  if (!is_known()) return std::nullopt;
  CostMeter until_now = *this;
  until_now.advance(now);
  const CostTotals& totals = until_now.totals_;
  CostStatus status{.currency = money_.currency,
                    .total = totals.total(),
                    .since_step = totals.since_version,
                    .per_hour = per_hour(),
                    .per_step = {},
                    .per_billion_tokens = {},
                    .machines = totals.machines,
                    .coordinator = totals.coordinator,
                    .egress = totals.egress,
                    .egress_bytes = totals.egress_bytes,
                    .waiting = totals.waiting,
                    .joining = totals.joining,
                    .idle = totals.idle,
                    .again = totals.again,
                    .steps_again = totals.steps_again,
                    .fetched = totals.fetched,
                    .joiner_bytes = totals.joiner_bytes,
                    .shadow_bytes = totals.shadow_bytes,
                    .unpriced = rates_.unpriced,
                    .budget = money_.budget,
                    .budget_hours = money_.budget_hours};
  if (version > totals.since_version) {
    const auto steps = static_cast<double>(version - totals.since_version);
    status.per_step = status.total / steps;
    status.per_billion_tokens = status.total / steps / tokens_per_step * kBillion;
  }
  return status;
}

std::optional<std::string> CostMeter::spent(double trained_seconds) const {
  const double hours = trained_seconds / kSecondsPerHour;
  if (money_.budget > 0 && totals_.total() >= money_.budget)
    return fmt::format("the budget of {} is spent: the run has cost {}",
                       money_text(money_.budget, money_.currency),
                       money_text(totals_.total(), money_.currency));
  if (money_.budget_hours > 0 && hours >= money_.budget_hours)
    return fmt::format("the budget of {} hours is spent: the run has trained for {:.4g} hours",
                       money_.budget_hours, hours);
  return std::nullopt;
}

std::optional<std::string> CostMeter::refusal(double trained_seconds) const {
  const auto sentence = spent(trained_seconds);
  if (!sentence) return std::nullopt;
  const bool by_cost = money_.budget > 0 && totals_.total() >= money_.budget;
  return fmt::format("{}; raise {} to go on, or set it to 0 for no such bound", *sentence,
                     by_cost ? "money.budget" : "money.budget_hours");
}

std::optional<std::string> CostMeter::take_warning(double trained_seconds) {
  const double hours = trained_seconds / kSecondsPerHour;
  if (money_.budget > 0 && totals_.total() >= kWarnedShare * money_.budget &&
      !std::exchange(warned_of_cost_, true))
    return fmt::format(
        "{:.0f} % of the budget of {} is spent; the run ends with a checkpoint when "
        "all of it is",
        100 * totals_.total() / money_.budget, money_text(money_.budget, money_.currency));
  if (money_.budget_hours > 0 && hours >= kWarnedShare * money_.budget_hours &&
      !std::exchange(warned_of_hours_, true))
    return fmt::format(
        "{:.0f} % of the budget of {} hours is spent; the run ends with a "
        "checkpoint when all of it is",
        100 * hours / money_.budget_hours, money_.budget_hours);
  return std::nullopt;
}

}  // namespace swarmline
