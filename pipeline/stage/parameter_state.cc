#include "pipeline/stage/parameter_state.h"

#include <cstring>
#include <utility>

#include "engine/base/hash.h"

namespace swarmline {

ParameterState::ParameterState(StageModel& model, const RunConfig& config)
    : model_(model),
      delayed_(config.pipeline.delay == 1),
      optimizer_(config.optimizer, model.layout()),
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

void ParameterState::apply(const StepScalars& scalars) {
  optimizer_.step(scalars, reduced_.bytes(), committed_bytes());
  if (!delayed_) model_.parameters_changed();
}

void ParameterState::activate() {
  if (!delayed_) return;
  std::memcpy(model_.parameters().data(), committed_.data(), committed_.size());
  model_.parameters_changed();
}

std::uint64_t ParameterState::digest() const {
  RollingHash hash;
  hash.add(committed_parameters());
  hash.add(optimizer_.first_moment());
  hash.add(optimizer_.second_moment());
  return hash.value();
}

}  // namespace swarmline
