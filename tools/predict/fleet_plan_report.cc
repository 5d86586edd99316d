#include "tools/predict/fleet_plan_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "engine/store/json_writer.h"
#include "tools/predict/fleet_prediction_report.h"

namespace swarmline {
namespace {

constexpr FleetWay kComparedWith = FleetWay::kRestart180;

std::string minutes(double seconds) {
  return seconds < 60 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.0f} min", seconds / 60);
}

std::string plural(std::uint32_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string machines_text(const FleetSetting& setting) {
  if (setting.machines == 0) return fmt::format("{} on demand", setting.on_demand);
  if (setting.on_demand == 0) return fmt::format("{} spot", setting.machines);
  return fmt::format("{} spot + {}", setting.machines, setting.on_demand);
}

std::string shadows_text(const FleetSetting& setting) {
  return setting.shadows ? std::to_string(*setting.shadows) : "auto";
}

const FleetOutcome* find(const FleetPlan& plan, FleetWay way) {
  const auto at = std::ranges::find(plan.ways, way, &FleetOutcome::way);
  return at == plan.ways.end() ? nullptr : &*at;
}

std::string money(double dollars) {
  return std::isfinite(dollars) ? fmt::format("{:.2f}", dollars) : "-";
}

std::string ratio(double value) {
  return std::isfinite(value) ? fmt::format("{:.2f}", value) : "-";
}

// Where bytes cost something.
bool pays_egress(const FleetPlanQuestion& question) {
  return question.fleet.classes.front().egress_dollars_per_gb > 0;
}

std::string row(const FleetPlanQuestion& question, const FleetPlan& plan,
                const FleetOutcome& outcome) {
  const FleetSetting& setting = outcome.setting;
  const bool slow = outcome.tokens_per_second < plan.least_tokens_per_second;
  return fmt::format(
      "{:<27} {:>6} {:<14} {:>7} {:>7} {:>10.0f} {:>7.1f}% {:>5.1f}% {:>9} {:>6}{}{}\n",
      name_of(outcome.way), setting.stages, machines_text(setting),
      outcome.way == FleetWay::kSwarmline ? shadows_text(setting) : "",
      outcome.way == FleetWay::kOnDemand ? "" : minutes(setting.checkpoint_seconds),
      outcome.tokens_per_second, 100 * outcome.goodput, 100 * outcome.work.lost_share(),
      money(outcome.dollars_per_billion_tokens),
      ratio(outcome.dollars_per_billion_tokens / plan.best.dollars_per_billion_tokens),
      pays_egress(question) ? fmt::format(" {:>6.1f}%", 100 * outcome.egress_share()) : "",
      slow ? " too slow" : "");
}

// Another way may be cheaper than the plan's own setting; empty: none is.
std::string cheaper_way(const FleetPlan& plan) {
  const FleetOutcome* least = &plan.best;
  for (const FleetOutcome& outcome : plan.ways)
    if (outcome.tokens_per_second >= plan.least_tokens_per_second &&
        outcome.dollars_per_billion_tokens < least->dollars_per_billion_tokens)
      least = &outcome;
  if (least == &plan.best) return "";
  return fmt::format("cheaper still by this model: {}, {} $ a billion tokens\n",
                     name_of(least->way), money(least->dollars_per_billion_tokens));
}

void add_outcome(JsonWriter& json, const FleetOutcome& outcome) {
  const FleetSetting& setting = outcome.setting;
  json.begin_object().member("way", name_of(outcome.way));
  json.member("stages", setting.stages).member("spot", setting.machines);
  json.member("on_demand", setting.on_demand);
  if (outcome.way == FleetWay::kSwarmline) json.member("shadows", shadows_text(setting));
  json.member("codec", setting.codec).member("checkpoint_seconds", setting.checkpoint_seconds);
  json.member("machines_mean", outcome.machines_mean);
  json.member("tokens", outcome.work.tokens).member("tokens_per_second", outcome.tokens_per_second);
  json.member("goodput", outcome.goodput).member("lost", outcome.work.lost_share());
  json.member("rollbacks", outcome.work.rollbacks);
  json.member("stalled_seconds", outcome.work.stalled_seconds);
  json.member("saving_seconds", outcome.work.saving_seconds);
  json.member("egress_dollars", outcome.egress_dollars);
  json.key("dollars_per_billion_tokens");
  if (std::isfinite(outcome.dollars_per_billion_tokens))
    json.value(outcome.dollars_per_billion_tokens);
  else
    json.null();
  json.end_object();
}

}  // namespace

std::string fleet_plan_advice(const FleetPlan& plan) {
  const FleetSetting& setting = plan.best.setting;
  std::string text = fmt::format("cheapest: {}", plural(setting.machines, "spot machine"));
  if (setting.on_demand > 0) text += fmt::format(" and {} on demand", setting.on_demand);
  text += fmt::format(" over {}, ", plural(setting.stages, "stage"));
  if (!setting.shadows)
    text += "shadows auto";
  else
    text += *setting.shadows == 0 ? "no shadows" : plural(*setting.shadows, "shadow") + " a stage";
  text +=
      fmt::format(", codec {}, a checkpoint every {}: {} $ a billion tokens", setting.codec,
                  minutes(setting.checkpoint_seconds), money(plan.best.dollars_per_billion_tokens));
  const FleetOutcome* other = find(plan, kComparedWith);
  if (other == nullptr || other->work.tokens <= 0) return text;
  const double times = other->dollars_per_billion_tokens / plan.best.dollars_per_billion_tokens;
  return text + fmt::format(", {:.1f} times {} than {}", times >= 1 ? times : 1 / times,
                            times >= 1 ? "cheaper" : "dearer", name_of(kComparedWith));
}

std::string fleet_plan_text(const FleetPlanQuestion& question, const FleetPlan& plan,
                            const FleetPrediction& prediction,
                            const std::vector<FleetChange>& changes) {
  const FleetClass& machine = question.fleet.classes.front();
  std::string text = fleet_plan_advice(plan) + "\n" + cheaper_way(plan);
  text += fmt::format(
      "\n{} over {:.1f} h of {}, up to {} of {} at {} $/h, {} on demand; simulated, {} "
      "settings\n\n",
      question.fleet.config.run.name, question.trace.seconds / 3600, question.trace.name,
      question.trace.peak(), machine.name, machine.dollars_per_hour,
      machine.on_demand_dollars_per_hour, plan.settings_tried);
  text += fmt::format("{:<27} {:>6} {:<14} {:>7} {:>7} {:>10} {:>8} {:>6} {:>9} {:>6}{}\n", "way",
                      "stages", "machines", "shadows", "saved", "tokens/s", "goodput", "lost",
                      "$/billion", "times", pays_egress(question) ? "  egress" : "");
  for (const FleetOutcome& outcome : plan.ways) text += row(question, plan, outcome);
  text += fmt::format("\nThe plan's own setting with {} of the machines:\n\n",
                      plan.at_best.classes.front().count);
  return text + fleet_prediction_text(plan.at_best, prediction, changes);
}

std::string fleet_plan_json(const FleetPlanQuestion& question, const FleetPlan& plan,
                            const FleetPrediction& prediction,
                            const std::vector<FleetChange>& changes) {
  JsonWriter json(1);
  json.begin_object().member("format", kFleetPlanFormat).member("kind", "plan");
  json.member("run", question.fleet.config.run.name).member("advice", fleet_plan_advice(plan));
  json.member("trace", question.trace.name).member("seconds", question.trace.seconds);
  json.member("peak", question.trace.peak()).member("settings_tried", plan.settings_tried);
  json.key("best");
  add_outcome(json, plan.best);
  json.key("ways").begin_array();
  for (const FleetOutcome& outcome : plan.ways) add_outcome(json, outcome);
  json.end_array().key("by_machines").begin_array();
  for (const FleetOutcome& outcome : plan.by_machines) add_outcome(json, outcome);
  json.end_array().key("prediction");
  add_fleet_prediction(json, plan.at_best, prediction, changes);
  json.end_object();
  return json.take() + "\n";
}

LinePlot fleet_plan_plot(const FleetPlanQuestion& question, const FleetPlan& plan) {
  LinePlot plot{
      .title = fmt::format("{} on {}", question.fleet.config.run.name, question.trace.name),
      .x_label = "machines at a time, at most",
      .y_label = "$ per billion tokens",
      .y_range = std::nullopt,
      .lines = {}};
  // What is far dearer than machines on demand would flatten everything else.
  const FleetOutcome* on_demand = find(plan, FleetWay::kOnDemand);
  const double most = on_demand == nullptr ? INFINITY : 2 * on_demand->dollars_per_billion_tokens;
  for (const FleetWay way : kFleetWays) {
    PlotLine line{.label = name_of(way), .points = {}, .style = plot.lines.size()};
    for (const FleetOutcome& outcome : plan.by_machines)
      if (outcome.way == way && outcome.dollars_per_billion_tokens <= most)
        line.points.emplace_back(outcome.setting.machines + outcome.setting.on_demand,
                                 outcome.dollars_per_billion_tokens);
    if (!line.points.empty()) plot.lines.push_back(std::move(line));
  }
  return plot;
}

}  // namespace swarmline
