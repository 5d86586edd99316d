#include "console/cost_text.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/hours.h"
#include "pipeline/protocol/money_text.h"

namespace swarmline {

namespace {

constexpr double kShareShown = 0.0005;  // 0.1 % when it is rounded

std::string paid_for(const CostStatus& cost) {
  std::string text = "peers " + money_text(cost.machines, cost.currency);
  if (cost.coordinator > 0) text += ", coordinator " + money_text(cost.coordinator, cost.currency);
  if (cost.egress > 0)
    text += fmt::format(", egress {} for {:.3g} GB", money_text(cost.egress, cost.currency),
                        static_cast<double>(cost.egress_bytes) / kBytesPerGb);
  return text;
}

std::string waste_text(const CostStatus& cost) {
  std::string text;
  const std::pair<const char*, double> parts[] = {{"idle peers", cost.idle},
                                                  {"waiting to train", cost.waiting},
                                                  {"joining", cost.joining},
                                                  {"steps computed again", cost.again},
                                                  {"fetched states", cost.fetched}};
  for (const auto& [what, amount] : parts)
    if (cost.total > 0 && amount / cost.total >= kShareShown)
      text +=
          fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", what, 100 * amount / cost.total);
  return text;
}

}  // namespace

std::string cost_amounts(const RunStatus& status) {
  const CostStatus& cost = *status.cost;
  std::string line = money_digits(cost.total);
  if (cost.budget > 0) line += " of " + money_digits(cost.budget);
  line += " " + cost.currency;
  if (!status.over()) line += fmt::format("   {} an hour", money_digits(cost.per_hour));
  if (cost.per_billion_tokens)
    line += fmt::format("   {} a billion tokens", money_digits(*cost.per_billion_tokens));
  if (cost.budget_hours > 0)
    line += fmt::format("   {:.3g} of {:g} hours", status.elapsed_seconds / kSecondsPerHour,
                        cost.budget_hours);
  return line;
}

std::vector<std::string> cost_lines(const RunStatus& status) {
  if (!status.cost) return {};
  const CostStatus& cost = *status.cost;
  std::vector<std::string> lines{cost_amounts(status)};
  if (cost.per_step)
    lines.push_back(fmt::format(
        "{} a step{}", money_text(*cost.per_step, cost.currency),
        cost.since_step > 0 ? fmt::format(", counted since step {}", cost.since_step) : ""));
  lines.push_back("paid for " + paid_for(cost));
  if (const std::string waste = waste_text(cost); !waste.empty()) lines.push_back("waste " + waste);
  if (cost.unpriced > 0 && !status.over())
    lines.push_back(fmt::format("{} {} no price: it is not in the cost", cost.unpriced,
                                cost.unpriced == 1 ? "peer says" : "peers say"));
  return lines;
}

}  // namespace swarmline
