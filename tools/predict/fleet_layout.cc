#include "tools/predict/fleet_layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "balancer/cut.h"
#include "engine/optimizer/state_layout.h"
#include "node/memory_report.h"
#include "node/stage_memory.h"

namespace swarmline {
namespace {

// One of each stage, so that what a peer holds under way is the most that it may be.
FleetQuestion cut_question(const FleetQuestion& question, std::uint32_t stages) {
  FleetQuestion cut = question;
  PipelineSection& pipeline = cut.config.pipeline;
  if (pipeline.stages != stages) pipeline.layers.clear();
  pipeline.stages = stages;
  pipeline.peers.assign(stages, 1);
  cut.seats.clear();
  return cut;
}

bool fits_machine(const FleetQuestion& question, const std::vector<StageSpec>& cut,
                  bool recompute) {
  const std::uint64_t memory = question.classes.front().memory_bytes;
  if (memory == 0) return true;
  for (std::uint32_t s = 0; s < cut.size(); ++s) {
    const MemoryQuestion stage{
        .config = question.config, .model = question.model, .cut = cut, .stage = s};
    if (!fits({"", memory}, cuda_peer_memory(stage, recompute).device.total())) return false;
  }
  return true;
}

}  // namespace

Result<FleetLayout> fleet_layout(const FleetQuestion& question, std::uint32_t stages) {
  const FleetQuestion of_cut = cut_question(question, stages);
  const RunConfig& config = of_cut.config;
  const auto cut =
      cut_layers(model_costs(question.model), {.stages = stages,
                                               .share_layers = config.model.share_layers,
                                               .stage_speeds = {},
                                               .layers = config.pipeline.layers});
  if (!cut) return std::unexpected(cut.error());
  FleetLayout layout{.stages = stages,
                     .recompute = config.pipeline.recompute == Recompute::kAlways};
  if (!fits_machine(of_cut, *cut, layout.recompute)) {
    layout.recompute = true;
    if (config.pipeline.recompute == Recompute::kNever || !fits_machine(of_cut, *cut, true))
      return fail(ErrorCode::kUserMistake,
                  fmt::format("with {} stages a stage does not fit the memory of {}", stages,
                              question.classes.front().name));
  }
  for (const StageSpec& stage : *cut) {
    const ParameterLayout parameters = make_layout(question.model, stage);
    const std::uint64_t bytes =
        parameters.bytes() + make_state_layout(config.optimizer, parameters).bytes();
    layout.parameters = std::max(layout.parameters, static_cast<double>(parameters.elements));
    layout.state_bytes = std::max(layout.state_bytes, static_cast<double>(bytes));
  }
  const double bits = question.classes.front().bits_per_second;
  layout.state_seconds = bits > 0 ? 8 * layout.state_bytes / bits : 0;
  return layout;
}

FleetQuestion question_of_layout(const FleetQuestion& question, const FleetLayout& layout,
                                 std::uint32_t peers_a_stage, const std::string& codec) {
  FleetQuestion result = cut_question(question, layout.stages);
  result.config.pipeline.peers.assign(layout.stages, peers_a_stage);
  result.config.pipeline.recompute = layout.recompute ? Recompute::kAlways : Recompute::kNever;
  result.config.codec.forward = result.config.codec.backward = codec;
  result.classes.front().count = layout.stages * peers_a_stage;
  result.seats.assign(layout.stages, {peers_a_stage});
  return result;
}

Result<LayoutRate> layout_rate(const FleetQuestion& question, const FleetLayout& layout,
                               std::uint32_t peers_max, const std::string& codec) {
  const auto two = predict_traffic(question_of_layout(question, layout, 2, codec));
  if (!two) return std::unexpected(two.error());
  LayoutRate rate{
      .codec = codec,
      .training = {.tokens_per_second = {0},
                   .step_tokens = static_cast<double>(question.config.tokens_per_step())},
      .boundary_bytes = two->boundary_bytes,
      .averaging_bytes = two->averaging_bytes};
  for (std::uint32_t peers = 1; peers <= peers_max; ++peers) {
    const auto predicted =
        predict_tokens_per_second(question_of_layout(question, layout, peers, codec));
    if (!predicted) return std::unexpected(predicted.error());
    rate.training.tokens_per_second.push_back(*predicted);
  }
  return rate;
}

}  // namespace swarmline
