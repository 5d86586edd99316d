// What a run costs, as its members come and go, and its end when that is as much as it may cost.
#include <algorithm>

#include <fmt/format.h>

#include "base/hours.h"
#include "pipeline/coordinator/settling.h"

namespace swarmline {

namespace {

// Any of them may have sent what somebody fetched.
double mean_egress_price(const Membership& members, const CostMeter& cost, StageId stage) {
  const std::vector<Seat> seats = members.ready_of(stage);
  double sum = 0;
  for (const Seat& seat : seats)
    sum += cost.price_of_gb(members.members().at(seat.peer).egress_price);
  return seats.empty() ? 0 : sum / static_cast<double>(seats.size());
}

}  // namespace

// Of a run that begins again, and has nobody who could end it: it would end at once.
Result<void> Settling::check_budget() const {
  const RunTotals& totals = parts_.stats.totals();
  const std::uint64_t steps = parts_.shape.config.run.steps;
  if (parts_.beginning.furthest() >= steps) return {};
  if (const auto refusal = parts_.cost.refusal(totals.seconds))
    return swarmline::fail(ErrorCode::kUserMistake, *refusal);
  return {};
}

// What has been paid up to now, before anything changes.
void Settling::count_cost() {
  CoordinatorParts& p = parts_;
  const Instant now = p.alarms.now();
  p.cost.advance(now);
  for (const StateTransfer::Fetched& fetched : p.states.take_fetched())
    p.cost.state_fetched(fetched.bytes, mean_egress_price(p.members, p.cost, fetched.stage),
                         fetched.by_shadow);
  if (p.life.is_over() || !p.cost.is_known() || now - cost_recorded_at_ < kCostPeriod) return;
  cost_recorded_at_ = now;
  p.journal.record_totals(to_text(run_totals(p.status_sources())));
}

void Settling::set_rates() {
  CoordinatorParts& p = parts_;
  if (p.life.is_over()) return p.cost.set_rates({});
  const bool trains = p.life.is_running();
  if (priced_ == p.members.changes() && priced_training_ == trains) return;
  priced_ = p.members.changes();
  priced_training_ = trains;
  const PriceTally::Sums prices = p.members.prices().sums();
  p.cost.set_rates({.serving = prices.serving,
                    .joining = prices.joining,
                    .unpriced = prices.unpriced,
                    .trains = trains});
}

// A peer that came during the step is idle from then on.
void Settling::count_step(bool again) {
  CoordinatorParts& p = parts_;
  const double seconds = p.stats.last_seconds();
  double idle = 0;
  for (const PeerContributions& share : p.stats.last_shares()) {
    const auto found = p.members.members().find(share.peer);
    if (found == p.members.members().end() || found->second.state != MemberState::kReady) continue;
    const double here = std::min(seconds, to_seconds(p.alarms.now() - found->second.seated_at));
    idle += found->second.price * std::max(0.0, here - share.busy_seconds) / kSecondsPerHour;
  }
  p.cost.on_commit(again, idle, seconds);
  cost_recorded_at_ = p.alarms.now();
}

// What it does not end for yet is looked at again at the next event; there is one a heartbeat.
void Settling::look_at_budget() {
  CoordinatorParts& p = parts_;
  if (p.life.is_over() || p.sequence.draining() || p.life.is<life::Recovering>()) return;
  const double trained = p.stats.elapsed_seconds(p.alarms.now());
  if (const auto warning = p.cost.take_warning(trained))
    p.events.event("budget", *warning, LogLevel::kWarn);
  const auto spent = p.cost.spent(trained);
  if (!spent || p.life.is<life::FinalCheckpoint>()) return;
  spent_ = *spent;
  if (p.life.is<life::Training>()) {
    return drain(spent_);
  }
  end(0, fmt::format("{}; stopped before step {}", spent_, p.beginning.version() + 1));
}

}  // namespace swarmline
