#include "sim/seeds/hostile_knobs.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr std::uint64_t kOneIn = 4;  // seeds
constexpr std::uint64_t kTurnedMax = 6;

std::uint32_t turned_count(const KnobInfo& knob, double factor) {
  return std::max(1U, static_cast<std::uint32_t>(std::lround(Knobs().*knob.count * factor)));
}

void turn(const KnobInfo& knob, double factor, HostileKnobs& hostile) {
  const std::string comma = hostile.words.empty() ? "" : ", ";
  if (knob.count != nullptr) {
    const std::uint32_t count = hostile.knobs.*knob.count = turned_count(knob, factor);
    hostile.words += fmt::format("{}{} {}", comma, knob.name, count);
    return;
  }
  const Duration usual = Knobs().*knob.duration;
  Duration& time = hostile.knobs.*knob.duration;
  time = from_seconds(to_seconds(usual) * factor);
  hostile.patience += std::max(Duration{}, time - usual);
  hostile.words += fmt::format("{}{} {:.3g} s", comma, knob.name, to_seconds(time));
}

}  // namespace

HostileKnobs draw_knobs(Rng rng) {
  HostileKnobs hostile;
  if (rng.below(kOneIn) != 0) return hostile;
  // By lot, each under its name: a knob that is added to the table leaves most seeds as they are.
  std::map<std::uint64_t, const KnobInfo*> lots;
  for (const KnobInfo& knob : knob_table())
    if (!knob.gives_up && !knob.on_request) lots[rng.split(knob.name).next_u64()] = &knob;
  lots.erase(std::next(lots.begin(), static_cast<std::ptrdiff_t>(1 + rng.below(kTurnedMax))),
             lots.end());
  bool shortened = false;
  for (const auto& [lot, knob] : lots) {
    const bool low = knob->high == 1 || (knob->low < 1 && lot % 2 == 0);
    turn(*knob, low ? knob->low : knob->high, hostile);
    shortened = shortened || low;
  }
  if (!shortened) return hostile;
  for (const KnobInfo& knob : knob_table())
    if (knob.gives_up) hostile.knobs.*knob.count = turned_count(knob, knob.high);
  return hostile;
}

void draw_thin_heartbeats(Rng rng, HostileKnobs& hostile) {
  for (const KnobInfo& knob : knob_table()) {
    if (knob.name == "heartbeats_per_second") turn(knob, knob.low, hostile);
    if (knob.name == "heartbeat_period_max" && rng.below(2) == 0) turn(knob, knob.low, hostile);
  }
  hostile.patience += hostile.knobs.heartbeat_period_max;
}

void make_pieces_small(const RunConfig& config, HostileKnobs& hostile) {
  constexpr double kPieces = 8;
  const double width = config.model.d_model;
  const double layers = (config.model.layers + config.pipeline.stages - 1) / config.pipeline.stages;
  const double bytes =
      layers * 12 * width * width * static_cast<double>(size_bytes(config.model.dtype));
  for (const KnobInfo& knob : knob_table())
    if (knob.count == &Knobs::state_piece_bytes)
      turn(knob, std::max(knob.low, bytes / kPieces / Knobs().state_piece_bytes), hostile);
}

}  // namespace swarmline
