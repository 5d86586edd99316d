#include "tools/predict/simulate_report.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "console/text.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr int kSimulationFormat = 1;
constexpr std::size_t kPlotRows = 11;

double tokens_per_microbatch(const Scenario& scenario) {
  return static_cast<double>(scenario.run.batch.microbatch) * scenario.run.batch.sequence;
}

std::string faults_text(const ScenarioResult& result) {
  std::string text;
  for (const auto& [kind, count] : result.faults)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, to_string(kind));
  return text.empty() ? "none" : text;
}

std::string end_text(const ScenarioResult& result) {
  if (result.sentence.empty()) return "the scenario's time was up";
  return result.ended_badly ? "the run failed: " + result.sentence : result.sentence;
}

}  // namespace

LinePlot simulation_plot(const ScenarioResult& result, double tokens_per_microbatch) {
  LinePlot plot{.title = result.name + ": throughput", .x_label = "seconds", .y_label = "tokens/s"};
  PlotLine reached{.label = "reached", .style = 0};
  PlotLine optimum{.label = "optimum of the machines there", .style = 1};
  double highest = 0;
  for (const ScenarioSample& sample : result.samples) {
    reached.points.emplace_back(sample.seconds, sample.throughput * tokens_per_microbatch);
    optimum.points.emplace_back(sample.seconds, sample.optimum * tokens_per_microbatch);
    highest = std::max(highest, sample.optimum);
    if (sample.throughput > highest) highest = sample.throughput;  // no NaN
  }
  plot.y_range = std::pair(0.0, std::max(highest * tokens_per_microbatch * 1.05, 1e-9));
  plot.lines = {std::move(reached), std::move(optimum)};
  return plot;
}

std::string simulation_text(const Scenario& scenario, const ScenarioResult& result,
                            std::size_t columns) {
  const double seconds = std::max(result.seconds, 1e-9);
  const auto tokens = static_cast<double>(result.tokens);
  const ScenarioTraffic& traffic = result.traffic;
  std::string text = fmt::format(
      "{}: {} of training, up to {} machines, {} parameters, {} stages\n", result.name,
      human_seconds(result.seconds), result.peak_machines,
      human_count(static_cast<double>(result.parameters)), scenario.run.pipeline.stages);
  const auto line = [&](const char* what, const std::string& said) {
    text += fmt::format("  {:<11} {}\n", what, said);
  };
  line("throughput", fmt::format("{} tokens/s, {:.1f} % of what the machines there could do",
                                 with_commas(static_cast<std::uint64_t>(tokens / seconds)),
                                 100 * result.share_of_optimum()));
  line("steps", fmt::format("{} of {} tokens; {} tokens in all", with_commas(result.steps),
                            with_commas(scenario.run.tokens_per_step()), human_count(tokens)));
  line("wasted", fmt::format("{:.2f} % of {} forward and backward passes did not count",
                             100 * result.wasted_share(), with_commas(result.passes_done)));
  line("faults", faults_text(result));
  line("peers", fmt::format("{} joined, {} lost, {} left, {} moved after the start", result.joined,
                            result.lost, result.left, result.moved));
  line("traffic", fmt::format("activations {}, gradients {}, averaging {}, state {}, checkpoints "
                              "{}, control {}",
                              human_bytes(traffic.activations), human_bytes(traffic.gradients),
                              human_bytes(traffic.averaging), human_bytes(traffic.state),
                              human_bytes(traffic.checkpoints), human_bytes(traffic.control)));
  if (result.dollars > 0)
    line("cost",
         fmt::format("{:.2f} for {:.1f} machine hours, {:.2f} per billion tokens", result.dollars,
                     result.machine_hours, tokens > 0 ? result.dollars / tokens * 1e9 : 0.0));
  if (result.seconds_without_optimum > 0)
    line("idle", fmt::format("{} with fewer machines than stages, left out of the optimum",
                             human_seconds(result.seconds_without_optimum)));
  line("end", end_text(result));
  text += '\n';
  for (const std::string& row :
       to_text(simulation_plot(result, tokens_per_microbatch(scenario)), columns, kPlotRows))
    text += row + '\n';
  return text;
}

std::string simulation_json(const Scenario& scenario, const ScenarioResult& result) {
  JsonWriter json;
  json.begin_object().member("format", kSimulationFormat).member("name", result.name);
  json.member("seed", scenario.seed).member("seconds", result.seconds);
  json.member("failed", result.ended_badly).member("end", end_text(result));
  json.member("stages", scenario.run.pipeline.stages).member("parameters", result.parameters);
  json.member("boundary_bytes", result.boundary_bytes);
  json.member("steps", result.steps).member("microbatches", result.microbatches);
  json.member("tokens", result.tokens);
  json.member("optimal_microbatches", result.optimal_microbatches);
  json.member("share_of_optimum", result.share_of_optimum());
  json.member("seconds_without_optimum", result.seconds_without_optimum);
  json.member("passes_done", result.passes_done).member("passes_counted", result.passes_counted);
  json.key("faults").begin_object();
  for (const auto& [kind, count] : result.faults) json.member(to_string(kind), count);
  json.end_object();
  json.member("joined", result.joined).member("lost", result.lost).member("left", result.left);
  json.member("moved", result.moved);
  json.member("peak_machines", result.peak_machines);
  json.member("machine_hours", result.machine_hours).member("cost", result.dollars);
  const ScenarioTraffic& traffic = result.traffic;
  json.key("bytes").begin_object().member("activations", traffic.activations);
  json.member("gradients", traffic.gradients).member("averaging", traffic.averaging);
  json.member("state", traffic.state).member("checkpoints", traffic.checkpoints);
  json.member("control", traffic.control).end_object();
  json.member("events", result.events).member("trace", fmt::format("{:016x}", result.trace_hash));
  json.key("samples").begin_array();
  for (const ScenarioSample& sample : result.samples) {
    json.begin_object().member("seconds", sample.seconds);
    json.member("throughput", sample.throughput).member("optimum", sample.optimum);
    json.member("machines", sample.machines).end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
