// What a user could change, each tried in the model.

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "balancer/cut.h"
#include "tools/predict/fleet_prediction.h"

namespace swarmline {
namespace {

constexpr int kRecutsMax = 8;

class Trials {
 public:
  Trials(const FleetQuestion& question, const FleetPrediction& now)
      : question_(question), now_(now) {}

  // `change` says what it did, or nothing when it does not apply.
  void attempt(const std::function<std::optional<std::string>(FleetQuestion&)>& change) {
    FleetQuestion changed = question_;
    auto what = change(changed);
    if (!what) return;
    const auto predicted = predict_fleet(changed);
    if (!predicted) return;  // e.g. more stages than layers
    const double gain = predicted->tokens_per_second / now_.tokens_per_second - 1;
    const double cheaper =
        now_.dollars_per_billion_tokens > 0
            ? 1 - predicted->dollars_per_billion_tokens / now_.dollars_per_billion_tokens
            : 0;
    const bool worth = gain >= kFleetGainMin || (cheaper >= kFleetGainMin && gain > -kFleetGainMin);
    if (!worth) return;
    found_.push_back({.what = std::move(*what),
                      .tokens_per_second = predicted->tokens_per_second,
                      .gain = gain,
                      .dollars_per_billion_tokens = predicted->dollars_per_billion_tokens});
  }

  std::vector<FleetChange> take() {
    std::ranges::sort(found_, [](const FleetChange& a, const FleetChange& b) {
      return a.gain != b.gain ? a.gain > b.gain : a.what < b.what;
    });
    if (found_.size() > kFleetChangesMax) found_.resize(kFleetChangesMax);
    return std::move(found_);
  }

 private:
  const FleetQuestion& question_;
  const FleetPrediction& now_;
  std::vector<FleetChange> found_;
};

void attempt_config(Trials& trials) {
  for (const char* codec : {"bf16", "h8", "h4"}) {
    trials.attempt([codec](FleetQuestion& q) -> std::optional<std::string> {
      if (q.config.codec.forward == codec && q.config.codec.backward == codec) return std::nullopt;
      q.config.codec.forward = q.config.codec.backward = codec;
      return fmt::format("codec.forward and codec.backward = \"{}\"", codec);
    });
    trials.attempt([codec](FleetQuestion& q) -> std::optional<std::string> {
      if (q.config.codec.averaging == codec) return std::nullopt;
      q.config.codec.averaging = codec;
      return fmt::format("codec.averaging = \"{}\"", codec);
    });
  }
  trials.attempt([](FleetQuestion& q) -> std::optional<std::string> {
    if (q.config.pipeline.delay == 1) return std::nullopt;
    q.config.pipeline.delay = 1;
    return "pipeline.delay = 1: average while the next step computes (needs a smaller lr: "
           "docs/codecs.md)";
  });
  trials.attempt([](FleetQuestion& q) -> std::optional<std::string> {
    if (q.config.pipeline.wiring != WiringKind::kStatic) return std::nullopt;
    q.config.pipeline.wiring = WiringKind::kStochastic;
    return "pipeline.wiring = \"stochastic\"";
  });
  trials.attempt([](FleetQuestion& q) -> std::optional<std::string> {
    const std::uint32_t twice = 2 * q.config.batch.microbatch;
    if (q.config.batch.batch % twice != 0) return std::nullopt;
    q.config.batch.microbatch = twice;
    return fmt::format("batch.microbatch = {}", twice);
  });
}

void attempt_window(Trials& trials, const FleetPrediction& now) {
  const auto& first = now.stages.front().seats;
  std::uint32_t sources = 0;
  for (const std::uint32_t count : first) sources += count;
  for (const std::uint32_t window : {2 * now.in_flight / sources, now.in_flight / sources / 2}) {
    trials.attempt([&](FleetQuestion& q) -> std::optional<std::string> {
      if (window == 0) return std::nullopt;
      q.config.pipeline.in_flight = window;
      return fmt::format("pipeline.in_flight = {}", window);
    });
  }
}

void attempt_stages(Trials& trials, std::uint32_t stages) {
  for (const std::uint32_t other : std::set{stages / 2, stages - 1, stages + 1, 2 * stages}) {
    trials.attempt([&](FleetQuestion& q) -> std::optional<std::string> {
      if (other == 0 || other == stages) return std::nullopt;
      q.config.pipeline.stages = other;
      q.config.pipeline.layers.clear();
      q.seats.clear();
      return fmt::format("pipeline.stages = {}", other);
    });
  }
}

std::vector<double> stage_speeds(const FleetQuestion& question, const FleetPrediction& prediction) {
  std::vector<double> speeds;
  for (const FleetStage& stage : prediction.stages) {
    double speed = 0;
    for (std::size_t c = 0; c < stage.seats.size(); ++c)
      speed += stage.seats[c] * question.classes[c].flops_per_second;
    speeds.push_back(speed);
  }
  return speeds;
}

// Layers by the speed of those who serve each stage, who are then seated anew, and so on: the cut
// that trains most. Empty: none trains more than the present one.
std::vector<std::uint32_t> layers_by_device(const FleetQuestion& question,
                                            const FleetPrediction& now) {
  std::vector<std::uint32_t> best;
  double most = now.tokens_per_second;
  FleetQuestion cut = question;
  std::set<std::vector<std::uint32_t>> seen;
  FleetPrediction prediction = now;
  for (int round = 0; round < kRecutsMax; ++round) {
    const auto stages =
        cut_layers(model_costs(question.model), {.stages = question.config.pipeline.stages,
                                                 .share_layers = question.config.model.share_layers,
                                                 .stage_speeds = stage_speeds(question, prediction),
                                                 .layers = {}});
    if (!stages) break;
    std::vector<std::uint32_t> layers;
    for (const StageSpec& stage : *stages) layers.push_back(stage.last_layer - stage.first_layer);
    if (!seen.insert(layers).second) break;
    cut.config.pipeline.layers = layers;
    const auto predicted = predict_fleet(cut);
    if (!predicted) break;
    prediction = *predicted;
    if (prediction.tokens_per_second <= most) continue;
    most = prediction.tokens_per_second;
    best = std::move(layers);
  }
  return best;
}

void attempt_layers(Trials& trials, const FleetQuestion& question, const FleetPrediction& now) {
  if (!question.seats.empty()) return;  // of a run that is under way
  trials.attempt([&](FleetQuestion& q) -> std::optional<std::string> {
    q.config.pipeline.layers = layers_by_device(question, now);
    if (q.config.pipeline.layers.empty()) return std::nullopt;
    return fmt::format("pipeline.layers = [{}]: more layers where devices are faster",
                       fmt::join(q.config.pipeline.layers, ", "));
  });
}

void attempt_fleet(Trials& trials, const FleetQuestion& question) {
  if (!question.seats.empty()) {
    trials.attempt([](FleetQuestion& q) -> std::optional<std::string> {
      q.seats.clear();
      return "the same peers, seated by the planner";
    });
  }
  for (std::size_t c = 0; c < question.classes.size(); ++c) {
    const std::string& name = question.classes[c].name;
    if (question.seats.empty()) {
      trials.attempt([&](FleetQuestion& q) -> std::optional<std::string> {
        ++q.classes[c].count;
        return fmt::format("one more {}", name);
      });
      trials.attempt([&](FleetQuestion& q) -> std::optional<std::string> {
        if (q.classes[c].count == 0 || q.classes.size() == 1) return std::nullopt;
        q.classes[c].count = 0;
        return fmt::format("none of {}", name);
      });
      continue;
    }
    for (std::size_t to = 0; to < question.seats.size(); ++to) {
      for (std::size_t from = 0; from < question.seats.size(); ++from) {
        trials.attempt([&](FleetQuestion& q) -> std::optional<std::string> {
          std::uint32_t serving = 0;
          for (const std::uint32_t count : q.seats[from]) serving += count;
          if (from == to || q.seats[from][c] == 0 || serving < 2) return std::nullopt;
          --q.seats[from][c];
          ++q.seats[to][c];
          return fmt::format("move {} from stage {} to {}", name, from, to);
        });
      }
    }
  }
}

}  // namespace

std::vector<FleetChange> fleet_changes(const FleetQuestion& question,
                                       const FleetPrediction& prediction) {
  Trials trials(question, prediction);
  attempt_config(trials);
  attempt_window(trials, prediction);
  attempt_stages(trials, question.config.pipeline.stages);
  attempt_layers(trials, question, prediction);
  attempt_fleet(trials, question);
  return trials.take();
}

}  // namespace swarmline
