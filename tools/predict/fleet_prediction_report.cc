#include "tools/predict/fleet_prediction_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/hours.h"

namespace swarmline {
namespace {

constexpr std::size_t kSeatNamesMax = 3;  // a line's width

std::string seats_text(const FleetQuestion& question, const FleetStage& stage) {
  std::vector<std::string> parts;
  std::uint32_t left_out = 0;
  for (std::size_t c = 0; c < stage.seats.size(); ++c) {
    if (stage.seats[c] == 0) continue;
    if (parts.size() < kSeatNamesMax)
      parts.push_back(fmt::format("{} {}", stage.seats[c], question.classes[c].name));
    else
      left_out += stage.seats[c];
  }
  if (left_out > 0) parts.push_back(fmt::format("{} more", left_out));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string bottleneck_text(const FleetPrediction& prediction) {
  switch (prediction.bottleneck) {
    case FleetPart::kNone:
      return "nothing in particular";
    case FleetPart::kDevices:
      return fmt::format("devices, most at stage {}", prediction.bottleneck_stage);
    case FleetPart::kLinks:
      return fmt::format("links, most at stage {}", prediction.bottleneck_stage);
    case FleetPart::kLatency:
      return "latency";
    case FleetPart::kAveraging:
      return "averaging";
  }
  return "";
}

std::string_view bottleneck_name(FleetPart part) {
  constexpr std::string_view kNames[] = {"none", "devices", "links", "latency", "averaging"};
  return kNames[static_cast<std::size_t>(part)];
}

std::string layers_text(const StageSpec& stage) {
  return fmt::format("{}-{}", stage.first_layer, stage.last_layer - 1);
}

std::string money(double dollars) {
  return dollars > 0 ? fmt::format("{:.2f}", dollars) : "-";
}

std::string egress_text(const FleetPrediction& prediction) {
  if (prediction.egress_dollars_per_hour <= 0) return "";
  return fmt::format(" of machines and {:.2f} $/h of egress ({:.3g} GB a step)",
                     prediction.egress_dollars_per_hour, prediction.traffic.bytes() / kBytesPerGb);
}

std::string changes_text(const std::vector<FleetChange>& changes) {
  if (changes.empty()) return "\nNo single change that was tried gains 1 %.\n";
  std::size_t width = 20;
  for (const FleetChange& change : changes) width = std::max(width, change.what.size());
  std::string text = fmt::format("\n{:<{}}  {:>10}  {:>6}  {:>13}\n", "What to change first", width,
                                 "tokens/s", "gain", "$ per billion");
  for (const FleetChange& change : changes)
    text += fmt::format("{:<{}}  {:>10.0f}  {:>+5.0f}%  {:>13}\n", change.what, width,
                        change.tokens_per_second, 100 * change.gain,
                        money(change.dollars_per_billion_tokens));
  return text;
}

}  // namespace

std::string fleet_prediction_text(const FleetQuestion& question, const FleetPrediction& prediction,
                                  const std::vector<FleetChange>& changes) {
  const RunConfig& config = question.config;
  std::string text =
      fmt::format("{}: {} microbatches a step, {} in flight; predicted, not measured\n\n",
                  config.run.name, config.microbatches_per_step(), prediction.in_flight);
  text += fmt::format("{:>5} {:>8} {:>13} {:>11} {:>11}  {}\n", "stage", "layers", "devices busy",
                      "links busy", "averaging", "peers");
  for (const FleetStage& stage : prediction.stages) {
    text +=
        fmt::format("{:>5} {:>8} {:>12.0f}% {:>10.0f}% {:>10.1f}s  {}\n", stage.stage.stage.value,
                    layers_text(stage.stage), 100 * stage.device_busy, 100 * stage.link_busy,
                    stage.averaging_seconds, seats_text(question, stage));
  }
  text += fmt::format("\n{:<11} {:.0f}\n", "tokens/s", prediction.tokens_per_second);
  text += fmt::format(
      "{:<11} {:.1f} s: microbatches {:.1f} s (fill and drain {:.1f}), averaging and "
      "commit {:.1f} s{}\n",
      "step", prediction.step_seconds, prediction.batch_seconds, prediction.drain_seconds,
      prediction.averaging_seconds, config.pipeline.delay == 1 ? " meanwhile" : "");
  text += fmt::format("{:<11} {}; twice as fast, {:.0f} % more tokens/s\n", "waits for",
                      bottleneck_text(prediction), 100 * prediction.bottleneck_gain);
  if (prediction.dollars_per_billion_tokens > 0)
    text += fmt::format("{:<11} {:.2f} $/h{}, {:.2f} $ per billion tokens\n", "cost",
                        prediction.dollars_per_hour, egress_text(prediction),
                        prediction.dollars_per_billion_tokens);
  return text + changes_text(changes);
}

void add_fleet_prediction(JsonWriter& json, const FleetQuestion& question,
                          const FleetPrediction& prediction,
                          const std::vector<FleetChange>& changes) {
  json.begin_object().member("format", kFleetPredictionFormat).member("kind", "prediction");
  json.member("run", question.config.run.name);
  json.member("tokens_per_second", prediction.tokens_per_second);
  json.member("step_seconds", prediction.step_seconds);
  json.member("batch_seconds", prediction.batch_seconds);
  json.member("drain_seconds", prediction.drain_seconds);
  json.member("averaging_seconds", prediction.averaging_seconds);
  json.member("in_flight", prediction.in_flight);
  json.member("dollars_per_hour", prediction.dollars_per_hour);
  json.member("egress_dollars_per_hour", prediction.egress_dollars_per_hour);
  json.member("boundary_bytes_per_step", prediction.traffic.boundary_bytes);
  json.member("averaging_bytes_per_step", prediction.traffic.averaging_bytes);
  json.member("dollars_per_billion_tokens", prediction.dollars_per_billion_tokens);
  json.key("bottleneck").begin_object();
  json.member("part", bottleneck_name(prediction.bottleneck));
  json.member("stage", prediction.bottleneck_stage).member("gain", prediction.bottleneck_gain);
  json.end_object();
  json.key("stages").begin_array();
  for (const FleetStage& stage : prediction.stages) {
    json.begin_object().member("stage", stage.stage.stage.value);
    json.member("first_layer", stage.stage.first_layer)
        .member("last_layer", stage.stage.last_layer);
    json.member("device_busy", stage.device_busy).member("link_busy", stage.link_busy);
    json.member("averaging_seconds", stage.averaging_seconds);
    json.key("peers").begin_array();
    for (std::size_t c = 0; c < stage.seats.size(); ++c) {
      if (stage.seats[c] == 0) continue;
      json.begin_object().member("class", question.classes[c].name);
      json.member("count", stage.seats[c]).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
  json.key("changes").begin_array();
  for (const FleetChange& change : changes) {
    json.begin_object().member("change", change.what);
    json.member("tokens_per_second", change.tokens_per_second).member("gain", change.gain);
    json.member("dollars_per_billion_tokens", change.dollars_per_billion_tokens).end_object();
  }
  json.end_array().end_object();
}

std::string fleet_prediction_json(const FleetQuestion& question, const FleetPrediction& prediction,
                                  const std::vector<FleetChange>& changes) {
  JsonWriter json(1);
  add_fleet_prediction(json, question, prediction, changes);
  return json.take() + "\n";
}

}  // namespace swarmline
