#include "pipeline/stage/parameter_state.h"

#include <cstring>
#include <utility>

#include "engine/base/hash.h"

namespace swarmline {
namespace {

Result<FlatOptimizer> make_optimizer(StageModel& model, const OptimizerSection& options) {
  const float* const on_device = model.device_parameters();
  if (on_device == nullptr || options.state_memory == "host") {
    return FlatOptimizer(options, model.layout());
  }
  auto device = make_device_optimizer(options, model.layout(), on_device);
  if (!device) return std::unexpected(std::move(device).error());
  return FlatOptimizer(options, model.layout(), std::move(*device));
}

}  // namespace

ParameterState::ParameterState(StageModel& model, const RunConfig& config)
    : model_(model),
      delayed_(config.pipeline.delay == 1),
      optimizer_(make_optimizer(model, config.optimizer)),
      committed_(delayed_ ? Buffer::copy_of(model.parameters()) : Buffer()),
      open_(Buffer::zeroed(model.layout().bytes())),
      sealed_(Buffer::zeroed(model.layout().bytes())),
      reduced_(Buffer::zeroed(model.layout().bytes())) {}

MutableBytes ParameterState::committed_bytes() {
  return delayed_ ? committed_.bytes() : model_.parameters();
}

BytesView ParameterState::committed_parameters() const {
  return const_cast<ParameterState*>(this)->committed_bytes();
}

void ParameterState::seal() {
  std::swap(open_, sealed_);
  std::memset(open_.data(), 0, open_.size());
}

Result<void> ParameterState::apply(const StepScalars& scalars) {
  if (!optimizer_) return std::unexpected(optimizer_.error());
  // With a delay, the device's parameters are another version.
  float* const in_place = delayed_ ? nullptr : model_.device_parameters();
  SWARMLINE_TRY(optimizer_->step(scalars, reduced_.bytes(), committed_bytes(), in_place));
  if (delayed_) return {};
  if (optimizer_->on_device()) {
    model_.device_parameters_changed();
  } else {
    model_.parameters_changed();
  }
  return {};
}

void ParameterState::activate() {
  if (!delayed_) return;
  std::memcpy(model_.parameters().data(), committed_.data(), committed_.size());
  model_.parameters_changed();
}

Result<std::uint64_t> ParameterState::digest() const {
  if (!optimizer_) return std::unexpected(optimizer_.error());
  RollingHash hash;
  hash.add(committed_parameters());
  SWARMLINE_TRY(optimizer_->add_state_to(hash));
  return hash.value();
}

}  // namespace swarmline
