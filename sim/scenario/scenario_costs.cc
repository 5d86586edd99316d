#include "sim/scenario/scenario_costs.h"

#include <algorithm>

#include "balancer/cut.h"
#include "engine/config/configured_codec.h"
#include "engine/model/model_spec.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

constexpr double kForwardShare = 1.0 / 3;
constexpr std::uint32_t kVocabOfBytes = 257;
constexpr std::uint32_t kStandInVocab = 16;
constexpr double kStateBytes = 12, kSmallStateBytes = 6;  // a parameter and its moments
constexpr std::uint64_t kParameterBytes = 4;
constexpr std::size_t kListsKept = 64;                             // of each stage, as they changed
constexpr std::uint64_t kAveragedSample = std::uint64_t{1} << 20;  // elements

RunConfig stand_in_of(const RunConfig& real, const std::vector<StageSpec>& cut) {
  RunConfig config = real;
  config.model.d_model = 4;
  config.model.heads = 1;
  config.model.kv_heads = 0;
  config.model.d_ff = 4;
  config.model.vocab = kStandInVocab;
  config.data.kind = DataKind::kTokens;
  config.model.norm = NormKind::kRmsNorm;
  config.model.positions = PositionKind::kRotary;
  config.model.bias = false;
  config.model.dropout = 0;
  config.model.boundary = BoundaryKind::kNone;
  config.model.compute = ComputeKind::kNative;
  config.model.dtype = DType::kF64;
  config.model.stream = StreamKind::kDType;
  config.optimizer.state = MomentsKind::kF32;
  config.optimizer.state_memory = StateMemory::kDevice;
  config.batch = {.batch = real.microbatches_per_step(), .microbatch = 1, .sequence = 2};
  config.codec = {};
  config.pipeline.layers.clear();
  for (const StageSpec& stage : cut)
    config.pipeline.layers.push_back(stage.last_layer - stage.first_layer);
  return config;
}

}  // namespace

Result<ScenarioCosts> ScenarioCosts::make(const Scenario& scenario) {
  ScenarioCosts costs;
  costs.real_ = scenario.run;
  auto spec = resolve_model(scenario.run, kVocabOfBytes);
  if (!spec) return std::unexpected(spec.error());
  const ModelCosts model = model_costs(*spec);
  auto cut = cut_layers(model, {.stages = scenario.run.pipeline.stages,
                                .share_layers = spec->shape.share_layers,
                                .stage_speeds = {},
                                .layers = scenario.run.pipeline.layers});
  if (!cut) return std::unexpected(cut.error());
  costs.stand_in_ = stand_in_of(scenario.run, *cut);
  auto small = resolve_model(costs.stand_in_, kStandInVocab);
  if (!small) return std::unexpected(small.error());
  const std::uint32_t rows = scenario.run.batch.microbatch;
  for (const StageSpec& stage : *cut) {
    const ParameterLayout layout = make_layout(*spec, stage), stand_in = make_layout(*small, stage);
    costs.stages_.push_back({.flops = stage_flops(model, stage) * rows,
                             .elements = layout.elements,
                             .stand_in_elements = stand_in.elements});
    costs.groups_[stage.stage.value] = {.elements = layout.tied_offset,
                                        .stand_in_elements = stand_in.tied_offset};
    if (layout.has_tied() && cut->size() > 1)
      costs.groups_[static_cast<std::uint32_t>(cut->size())] = {
          .elements = layout.elements - layout.tied_offset,
          .stand_in_elements = stand_in.elements - stand_in.tied_offset};
  }
  const std::uint64_t tokens = std::uint64_t{rows} * scenario.run.batch.sequence;
  const CodecSection& codec = scenario.run.codec;
  const auto bytes = [&](const std::string& name, std::uint64_t elements, DType dtype) {
    return encoded_bytes(configured_codec(name, codec), elements, dtype);
  };
  const bool narrow = scenario.run.model.stream == StreamKind::kBF16;
  const DType stream = narrow ? DType::kBF16 : DType::kF32;
  costs.forward_bytes_ = bytes(codec.forward, tokens * spec->hidden_width(), stream);
  costs.backward_bytes_ = bytes(codec.backward, tokens * spec->hidden_width(), stream);
  costs.target_bytes_ = tokens * (spec->shape.vocab <= 65536 ? 2 : 4);
  costs.averaging_bytes_per_element_ =
      static_cast<double>(bytes(codec.averaging, kAveragedSample, DType::kF32)) / kAveragedSample;
  costs.state_bytes_per_element_ =
      scenario.run.optimizer.state == MomentsKind::k8Bit ? kSmallStateBytes : kStateBytes;
  if (scenario.run.pipeline.delay == 1) {
    costs.state_bytes_per_element_ += kParameterBytes;
    ++costs.state_tensors_;
  }
  return costs;
}

std::uint64_t ScenarioCosts::parameters() const {
  std::uint64_t sum = 0;
  for (const auto& [number, group] : groups_) sum += group.elements;
  return sum;
}

std::uint64_t ScenarioCosts::largest(std::uint64_t Stage::* elements) const {
  return (*std::ranges::max_element(stages_, {}, elements)).*elements;
}

std::uint64_t ScenarioCosts::checkpoint_bytes() const {
  return largest(&Stage::elements) * kParameterBytes;
}

std::uint64_t ScenarioCosts::state_bytes() const {
  return static_cast<std::uint64_t>(static_cast<double>(largest(&Stage::elements)) *
                                    state_bytes_per_element_);
}

std::uint64_t ScenarioCosts::stand_in_state_bytes() const {
  return largest(&Stage::stand_in_elements) * state_tensors_ * size_bytes(stand_in_.model.dtype);
}

std::optional<Duration> ScenarioCosts::service(const MachineKind& machine, StageId stage,
                                               JobKind kind) const {
  const bool forward = kind == JobKind::kForward;
  const double part = forward ? 1 : backward_share(kind);
  if (part == 0) return std::nullopt;
  if (machine.flops <= 0)
    return from_seconds(part * (forward ? machine.forward_seconds : machine.backward_seconds));
  return from_seconds(part * stage_work(stage) / machine.flops *
                      (forward ? kForwardShare : 1 - kForwardShare));
}

double ScenarioCosts::speed(const MachineKind& machine, StageId stage) const {
  if (machine.flops <= 0) return 1 / (machine.forward_seconds + machine.backward_seconds);
  return machine.flops / stage_work(stage);
}

// Of the stand-in's parameters, in fp64 as they are or in a wire buffer.
double ScenarioCosts::share_of(std::uint64_t payload_bytes, std::uint64_t elements) const {
  if (elements == 0) return 0;
  return std::min(1.0, static_cast<double>(payload_bytes) /
                           static_cast<double>(elements * size_bytes(stand_in_.model.dtype)));
}

void ScenarioCosts::on_seal(const Frame& frame) {
  const auto seal = parse<wire::Seal>(frame);
  if (!seal) return;
  for (const wire::ReduceGroup& group : seal->groups()) {
    const auto known = groups_.find(group.group());
    if (known == groups_.end()) continue;
    std::uint32_t members = static_cast<std::uint32_t>(group.members_size());
    for (const wire::RosterName& list : group.rosters())
      members += rosters_[list.stage()][list.serial()];
    known->second.members = std::max(1U, members);
  }
}

void ScenarioCosts::on_membership(const Frame& frame) {
  const auto view = parse<wire::Membership>(frame);
  if (!view) return;
  for (const wire::Roster& list : view->rosters()) {
    auto& sizes = rosters_[list.stage()];
    const std::uint32_t before = list.base() == 0 ? 0 : sizes[list.base()];
    if (list.base() == 0) sizes.clear();  // another coordinator may count from one again
    sizes[list.serial()] =
        before + static_cast<std::uint32_t>(list.members_size() - list.gone_size());
    if (sizes.size() > kListsKept) sizes.erase(sizes.begin());
  }
}

std::uint64_t ScenarioCosts::charge(StageId from_stage, const Frame& frame) {
  const std::uint64_t payload = frame.payload_bytes();
  const std::uint64_t rest = frame.wire_bytes() - payload;
  const auto of_group = [&](std::uint32_t number, bool sliced) {
    const auto group = groups_.find(number);
    if (group == groups_.end()) return frame.wire_bytes();
    double bytes = static_cast<double>(group->second.elements) * averaging_bytes_per_element_ *
                   share_of(payload, group->second.stand_in_elements);
    // The stand-in is too small for slices: one member reduces it all, each other's wait is the
    // same when every frame is a slice's.
    if (sliced) bytes /= group->second.members;
    return rest + static_cast<std::uint64_t>(bytes);
  };
  const auto of_stage = [&](double bytes_per_element, std::uint64_t tensors) {
    if (from_stage.value >= stages_.size()) return frame.wire_bytes();
    const Stage& stage = stages_[from_stage.value];
    return rest +
           static_cast<std::uint64_t>(static_cast<double>(stage.elements) * bytes_per_element *
                                      share_of(payload, tensors * stage.stand_in_elements));
  };
  switch (kind_of(frame)) {
    case MessageKind::kForward:
      return rest + forward_bytes_ + target_bytes_;
    case MessageKind::kGradient:
      return rest + backward_bytes_;
    case MessageKind::kReduceChunk: {
      const auto chunk = parse<wire::ReduceChunk>(frame);
      return chunk ? of_group(chunk->group(), true) : frame.wire_bytes();
    }
    case MessageKind::kPiece: {
      const auto piece = parse<wire::Piece>(frame);
      if (!piece) return frame.wire_bytes();
      if (!piece->blob().has_state()) return of_group(piece->blob().reduced().group(), false);
      return of_stage(state_bytes_per_element_, state_tensors_);
    }
    case MessageKind::kCheckpointPiece:
      return of_stage(kParameterBytes, 1);
    default:
      return frame.wire_bytes();
  }
}

void ScenarioCosts::count(StageId from_stage, const Frame& frame, ScenarioTraffic& traffic) {
  const auto bytes = static_cast<double>(charge(from_stage, frame));
  switch (kind_of(frame)) {
    case MessageKind::kForward:
      traffic.activations += bytes;
      break;
    case MessageKind::kGradient:
      traffic.gradients += bytes;
      break;
    case MessageKind::kReduceChunk: {
      const auto chunk = parse<wire::ReduceChunk>(frame);
      const auto group = groups_.find(chunk ? chunk->group() : ~0U);
      // As many slices as members go this way.
      traffic.averaging += bytes * (group == groups_.end() ? 1 : group->second.members);
      break;
    }
    case MessageKind::kPiece:
      traffic.state += bytes;
      break;
    case MessageKind::kCheckpointPiece:
      traffic.checkpoints += bytes;
      break;
    default:
      traffic.control += bytes;
  }
}

}  // namespace swarmline
