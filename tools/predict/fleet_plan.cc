#include "tools/predict/fleet_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/hours.h"
#include "sim/fleet/baselines.h"
#include "sim/fleet/rented_fleet.h"
#include "sim/fleet/replay.h"
#include "tools/predict/fleet_layout.h"

namespace swarmline {
namespace {

constexpr double kBillion = 1e9;
// Of training between two checkpoints, for all ways but checkpoint-restart.
constexpr double kPeriods[] = {60, 120, 300, 600, 1200, 1800, 3600};
constexpr double kLinkOfFreeJoins = 1e12;  // bits per second; its transfers are set to cost nothing

// A cut, with how fast it trains under each codec.
struct Candidate {
  FleetLayout layout;
  std::vector<LayoutRate> rates;
};

bool is_restart(FleetWay way) {
  return way == FleetWay::kRestart60 || way == FleetWay::kRestart180 ||
         way == FleetWay::kRestart300;
}
double restart_seconds(FleetWay way) {
  if (way == FleetWay::kRestart60) return 60;
  return way == FleetWay::kRestart180 ? 180 : 300;
}

struct Candidates {
  std::vector<Candidate> cuts;
  Candidate whole_model;  // fewest stages that fit a machine each: what a replica takes
};

// What a way makes of a fleet, before it is priced.
struct Trial {
  FleetSetting setting;
  double spot_seconds = 0;       // of machines
  double on_demand_seconds = 0;  // of machines
  double failure_seconds = 0;    // between losses, for Daly's period; 0: there are none
};

// Keeps the best outcomes; outcomes come in any order.
class Collector {
 public:
  explicit Collector(double least) : least_(least) {}

  void add(const FleetOutcome& outcome) {
    ++tried_;
    keep(best_[outcome.way], outcome);
    keep(by_machines_[{outcome.way, outcome.setting.machines + outcome.setting.on_demand}],
         outcome);
  }
  std::optional<FleetOutcome> best(FleetWay way) const {
    const auto at = best_.find(way);
    return at == best_.end() ? std::nullopt : at->second;
  }
  std::vector<FleetOutcome> by_machines() const {
    std::vector<FleetOutcome> all;
    for (const auto& [key, outcome] : by_machines_) all.push_back(*outcome);
    return all;
  }
  std::uint64_t tried() const { return tried_; }

 private:
  bool is_better(const FleetOutcome& one, const FleetOutcome& other) const {
    const bool one_reaches = one.tokens_per_second >= least_;
    const bool other_reaches = other.tokens_per_second >= least_;
    if (one_reaches != other_reaches) return one_reaches;
    if (!one_reaches) return one.tokens_per_second > other.tokens_per_second;
    return one.dollars_per_billion_tokens < other.dollars_per_billion_tokens;
  }
  void keep(std::optional<FleetOutcome>& kept, const FleetOutcome& outcome) const {
    if (!kept || is_better(outcome, *kept)) kept = outcome;
  }

  double least_;
  std::uint64_t tried_ = 0;
  std::map<FleetWay, std::optional<FleetOutcome>> best_;
  std::map<std::pair<FleetWay, std::uint32_t>, std::optional<FleetOutcome>> by_machines_;
};

class Search {
 public:
  Search(const FleetPlanQuestion& question, const Candidates& candidates)
      : question_(question),
        machine_(question.fleet.classes.front()),
        trace_(named_fleet(question.trace, question.seed)),
        peak_(trace_.peak()),
        candidates_(candidates),
        collector_(question.least_tokens_per_second) {}

  void run(const FleetPlanProgress& progress) {
    std::size_t number = 0;
    for (const Candidate& candidate : candidates_.cuts) {
      progress(number++, candidates_.cuts.size(),
               fmt::format("{} stages", candidate.layout.stages));
      try_on_demand(candidate);
      for (const std::uint32_t machines : numbers_of_machines(candidate.layout.stages)) {
        try_swarm(candidate, machines);
        try_others(candidate, machines);
      }
    }
    const Candidate& whole = candidates_.whole_model;
    for (const std::uint32_t machines : numbers_of_machines(whole.layout.stages)) {
      const Fleet spot = rented_fleet(trace_, machines);
      const Fleet usable = usable_fleet(spot, whole.layout.state_seconds);
      price(FleetWay::kReplicas, whole, trial_of(whole, machines, spot),
            replica_timeline(usable, whole.layout.stages, question_.notice_seconds > 0));
    }
  }
  const Collector& collector() const { return collector_; }

 private:
  std::vector<std::uint32_t> numbers_of_machines(std::uint32_t stages) const {
    std::set<std::uint32_t> numbers;
    if (!question_.machines.empty()) {
      numbers.insert(question_.machines.begin(), question_.machines.end());
    } else {
      for (std::uint32_t peers = 1; peers * stages <= peak_; peers += (peers + 1) / 2)
        numbers.insert(peers * stages);
      numbers.insert({stages + 1, stages + 2, peak_});  // whole pipelines, spares, all there are
    }
    std::erase_if(numbers, [&](std::uint32_t n) { return n < stages || n > peak_; });
    return {numbers.begin(), numbers.end()};
  }

  ReplayOptions replay_options(const Candidate& candidate, const Trial& trial) const {
    const FleetLayout& layout = candidate.layout;
    const TrainingRate& rate = candidate.rates.front().training;
    const double peers = trial.spot_seconds / trace_.seconds / layout.stages;
    ReplayOptions options{.stages = layout.stages, .seed = question_.seed};
    options.parameters = layout.parameters;
    options.state_bytes_per_parameter = layout.state_bytes / layout.parameters;
    // Cautious: nobody serves early, whatever a step's length is.
    options.served_bytes_per_parameter = options.state_bytes_per_parameter;
    options.link_bits_per_second = machine_.bits_per_second;
    if (machine_.bits_per_second == 0) {
      options.state_bytes_per_parameter = 0;
      options.link_bits_per_second = kLinkOfFreeJoins;
    }
    options.step_seconds = rate.step_tokens / rate.at(std::max(peers, 1.0));
    options.notice_seconds = question_.notice_seconds;
    options.loss_stall_seconds = kPlanLossStallSeconds;
    options.plan.shadows_per_stage = trial.setting.shadows;
    return options;
  }

  void try_swarm(const Candidate& candidate, std::uint32_t machines) {
    const Fleet spot = rented_fleet(trace_, machines);
    for (const std::uint32_t on_demand : {0U, candidate.layout.stages}) {
      const Fleet fleet = with_safe_machines(spot, on_demand);
      for (const std::optional<std::uint32_t> shadows :
           {std::optional(0U), std::optional<std::uint32_t>(), std::optional(1U)}) {
        Trial trial = trial_of(candidate, machines, spot);
        trial.setting.on_demand = on_demand;
        trial.setting.shadows = shadows;
        trial.on_demand_seconds = on_demand * trace_.seconds;
        ReplayOptions options = replay_options(candidate, trial);
        if (on_demand > 0) options.first_safe_node = first_safe_node(fleet, on_demand);
        price(FleetWay::kSwarmline, candidate, trial, replay_timeline(fleet, options));
      }
    }
  }

  void try_others(const Candidate& candidate, std::uint32_t machines) {
    const std::uint32_t stages = candidate.layout.stages;
    const Fleet spot = rented_fleet(trace_, machines);
    const Fleet usable = usable_fleet(spot, candidate.layout.state_seconds);
    const Trial trial = trial_of(candidate, machines, spot);
    for (const FleetWay way :
         {FleetWay::kRestart60, FleetWay::kRestart180, FleetWay::kRestart300}) {
      for (const bool grows : {true, false}) {
        const RestartJob job{
            .stages = stages,
            .restart_seconds = restart_seconds(way),
            .grows_at_once = grows,
            .saves_at_notice = question_.notice_seconds > 0 &&
                               question_.notice_seconds >= candidate.layout.state_seconds};
        price(way, candidate, trial, restart_timeline(usable, job));
      }
    }
    if (stages > 1)
      price(FleetWay::kRedundancy, candidate, trial,
            redundancy_timeline(usable, stages, candidate.layout.state_seconds));
  }

  void try_on_demand(const Candidate& candidate) {
    const std::uint32_t stages = candidate.layout.stages;
    for (const std::uint32_t machines : numbers_of_machines(stages)) {
      const std::uint32_t peers = machines / stages;
      Trial trial{.setting = {.stages = stages, .on_demand = peers * stages, .codec = {}}};
      trial.on_demand_seconds = peers * stages * trace_.seconds;
      price(FleetWay::kOnDemand, candidate, trial, steady_timeline(trace_.seconds, peers));
    }
  }

  Trial trial_of(const Candidate& candidate, std::uint32_t machines, const Fleet& spot) const {
    const std::uint64_t losses = loss_instants(spot);
    return {.setting = {.stages = candidate.layout.stages, .machines = machines, .codec = {}},
            .spot_seconds = machine_seconds(spot),
            .failure_seconds = losses > 0 ? spot.seconds / static_cast<double>(losses) : 0};
  }

  // With each codec and period that the way may choose.
  void price(FleetWay way, const Candidate& candidate, const Trial& trial,
             const std::vector<WorkSpan>& spans) {
    const double write = candidate.layout.state_seconds;
    for (const LayoutRate& with : candidate.rates) {
      const TrainingRate& rate = with.training;
      const double peers =
          (trial.spot_seconds + trial.on_demand_seconds) / trace_.seconds / candidate.layout.stages;
      const double step = rate.step_tokens / rate.at(std::max(peers, 1.0));
      std::vector<double> periods(std::begin(kPeriods), std::end(kPeriods));
      if (is_restart(way) && trial.failure_seconds > 0)
        periods = {question_.background_checkpoints ? step
                                                    : daly_period(write, trial.failure_seconds)};
      for (const double period : periods) {
        FleetOutcome outcome{.way = way, .setting = trial.setting};
        outcome.setting.codec = with.codec;
        outcome.setting.checkpoint_seconds = std::ceil(period / step) * step;  // at commits
        outcome.work = account_work(spans, rate,
                                    {.period_seconds = outcome.setting.checkpoint_seconds,
                                     .write_seconds = write,
                                     .in_background = question_.background_checkpoints});
        add_money(outcome, trial, candidate.layout, with);
        collector_.add(outcome);
      }
    }
  }
  void add_money(FleetOutcome& outcome, const Trial& trial, const FleetLayout& layout,
                 const LayoutRate& rate) const {
    const double seconds = trace_.seconds;
    double dollars =
        trial.spot_seconds / kSecondsPerHour * machine_.dollars_per_hour +
        trial.on_demand_seconds / kSecondsPerHour * machine_.on_demand_dollars_per_hour;
    if (outcome.way == FleetWay::kSwarmline)
      dollars += seconds / kSecondsPerHour * question_.fleet.config.money.coordinator_price;
    outcome.machines_mean = (trial.spot_seconds + trial.on_demand_seconds) / seconds;
    outcome.egress_dollars =
        egress_bytes(outcome, layout, rate) / kBytesPerGb * machine_.egress_dollars_per_gb;
    dollars += outcome.egress_dollars;
    outcome.tokens_per_second = outcome.work.tokens / seconds;
    outcome.dollars_per_billion_tokens = dollars / outcome.work.tokens * kBillion;
    const double steady = rate.training.at(outcome.machines_mean / outcome.setting.stages);
    outcome.goodput = steady > 0 ? outcome.tokens_per_second / steady : 0;
  }
  static double egress_bytes(const FleetOutcome& outcome, const FleetLayout& layout,
                             const LayoutRate& rate) {
    const double step_tokens = rate.training.step_tokens;
    const double peers = outcome.machines_mean / outcome.setting.stages;
    const WorkAccount& work = outcome.work;
    return work.worked_tokens() / step_tokens * rate.step_bytes(peers) +
           static_cast<double>(work.fetches) * layout.state_bytes +
           work.followed_tokens / step_tokens * layout.parameters *
               ReplayOptions{}.gradient_bytes_per_parameter;
  }

  const FleetPlanQuestion& question_;
  const FleetClass& machine_;
  Fleet trace_;
  std::uint32_t peak_;
  const Candidates& candidates_;
  Collector collector_;
};

std::unexpected<Error> mistake(const std::string& sentence) {
  return fail(ErrorCode::kUserMistake, sentence);
}

Result<void> check_question(const FleetPlanQuestion& question) {
  const FleetClass& machine = question.fleet.classes.front();
  const auto no_price = [&](const char* key, const char* what) {
    return mistake(
        fmt::format("{}: devices.{}: found no {}; write {} = DOLLARS, what one costs an "
                    "hour {}",
                    question.prices_path, machine.name, key, key, what));
  };
  if (machine.dollars_per_hour <= 0) return no_price("price", "when it may be taken away");
  if (machine.on_demand_dollars_per_hour <= 0)
    return no_price("on_demand_price", "when it is never taken away");
  if (question.trace.seconds < kPlanTraceSecondsMin)
    return mistake(
        fmt::format("{}: the trace covers {:.0f} s; expected at least {:.0f} s, better "
                    "a day",
                    question.trace_path, question.trace.seconds, kPlanTraceSecondsMin));
  if (question.trace.peak() == 0)
    return mistake(question.trace_path + ": the trace has no machines; expected some");
  return {};
}

// Divisors and powers of two, and the run's own.
std::vector<std::uint32_t> stages_to_try(const FleetPlanQuestion& question) {
  if (!question.stages.empty()) return question.stages;
  const std::uint32_t layers = question.fleet.model.shape.layers;
  const std::uint32_t most = std::min<std::uint32_t>(
      {layers, question.trace.peak(), static_cast<std::uint32_t>(kFleetPlanStagesMax)});
  std::vector<std::uint32_t> stages;
  for (std::uint32_t s = 1; s <= most; ++s)
    if (layers % s == 0 || (s & (s - 1)) == 0 || s == question.fleet.config.pipeline.stages)
      stages.push_back(s);
  return stages;
}

Result<Candidate> candidate_of(const FleetPlanQuestion& question, std::uint32_t stages) {
  const std::uint32_t peak = question.trace.peak();
  auto layout = fleet_layout(question.fleet, stages);
  if (!layout) return std::unexpected(layout.error());
  if (stages > peak)
    return mistake(
        fmt::format("{}: the trace has at most {} machines at a time, too few for {} "
                    "stages; expected another trace or fewer stages",
                    question.trace_path, peak, stages));
  std::vector<std::string> codecs = question.codecs;
  if (codecs.empty()) {
    codecs = {question.fleet.config.codec.forward};
    if (codecs.front() != "h8") codecs.emplace_back("h8");
  }
  Candidate candidate{.layout = *layout, .rates = {}};
  for (const std::string& codec : codecs) {
    auto rate = layout_rate(question.fleet, *layout, peak / stages + 1, codec);
    if (!rate) return std::unexpected(rate.error());
    candidate.rates.push_back(std::move(*rate));
  }
  return candidate;
}

Result<Candidates> candidates_of(const FleetPlanQuestion& question,
                                 const FleetPlanProgress& progress) {
  std::vector<std::uint32_t> stages = stages_to_try(question);
  std::ranges::sort(stages);
  Candidates candidates;
  std::optional<Error> refusal;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    progress(i, stages.size(), fmt::format("how fast {} stages are", stages[i]));
    auto candidate = candidate_of(question, stages[i]);
    if (candidate) {
      candidates.cuts.push_back(std::move(*candidate));
      continue;
    }
    if (!question.stages.empty()) return std::unexpected(candidate.error());
    refusal = candidate.error();
  }
  if (candidates.cuts.empty()) return std::unexpected(*refusal);
  candidates.whole_model = candidates.cuts.front();
  for (std::uint32_t s = 1; s < candidates.cuts.front().layout.stages; ++s) {
    if (!fleet_layout(question.fleet, s)) continue;
    auto smaller = candidate_of(question, s);
    if (!smaller) return std::unexpected(smaller.error());
    candidates.whole_model = std::move(*smaller);
    break;
  }
  return candidates;
}

}  // namespace

std::string name_of(FleetWay way) {
  switch (way) {
    case FleetWay::kSwarmline:
      return "swarmline";
    case FleetWay::kOnDemand:
      return "on demand only";
    case FleetWay::kRestart60:
    case FleetWay::kRestart180:
    case FleetWay::kRestart300:
      return fmt::format("checkpoint-restart at {:.0f} s", restart_seconds(way));
    case FleetWay::kRedundancy:
      return "redundant computing";
    case FleetWay::kReplicas:
      return "whole-model replicas";
  }
  return "";
}

Result<FleetPlan> plan_fleet(const FleetPlanQuestion& question, const FleetPlanProgress& progress) {
  SWARMLINE_TRY(check_question(question));
  auto candidates = candidates_of(question, progress);
  if (!candidates) return std::unexpected(candidates.error());
  Search search(question, *candidates);
  search.run(progress);
  const Collector& collector = search.collector();
  FleetPlan plan{.by_machines = collector.by_machines(),
                 .settings_tried = collector.tried(),
                 .least_tokens_per_second = question.least_tokens_per_second};
  for (const FleetWay way : kFleetWays)
    if (const auto best = collector.best(way)) plan.ways.push_back(*best);
  const auto best = collector.best(FleetWay::kSwarmline);
  if (!best)
    return mistake(
        "--machines: expected at least as many as there are stages, and at "
        "most as many as the trace has");
  if (best->tokens_per_second < question.least_tokens_per_second)
    return mistake(
        fmt::format("no setting reaches {:.0f} tokens/s on this trace; the fastest makes "
                    "{:.0f}",
                    question.least_tokens_per_second, best->tokens_per_second));
  plan.best = *best;
  const auto at = std::ranges::find(candidates->cuts, plan.best.setting.stages,
                                    [](const Candidate& c) { return c.layout.stages; });
  const double peers = std::round(plan.best.machines_mean / plan.best.setting.stages);
  plan.at_best =
      question_of_layout(question.fleet, at->layout,
                         static_cast<std::uint32_t>(std::max(peers, 1.0)), plan.best.setting.codec);
  return plan;
}

}  // namespace swarmline
