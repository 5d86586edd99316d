// A stage model that hands everything on to another, which it owns: whoever watches or breaks a
// model overrides what it needs. Header-only; shapes, errors and thread are the other's.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "engine/model/stage_model.h"

namespace swarmline {

class ModelWrapper : public StageModel {
 public:
  explicit ModelWrapper(std::unique_ptr<StageModel> inner) : inner_(std::move(inner)) {}
  Result<ForwardOutput> forward(const ForwardInput& input) override {
    return inner_->forward(input);
  }
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    return inner_->backward(input);
  }
  bool goes_on() const override { return inner_->goes_on(); }
  Result<void> add_weight_gradients(AttemptId id, MutableBytes accumulator) override {
    return inner_->add_weight_gradients(id, accumulator);
  }
  PageLock lock_pages(MutableBytes memory) override { return inner_->lock_pages(memory); }
  bool keeps_sums() const override { return inner_->keeps_sums(); }
  void clear_sums(MutableBytes accumulator) override { inner_->clear_sums(accumulator); }
  Result<void> collect_sums(MutableBytes accumulator) override {
    return inner_->collect_sums(accumulator);
  }
  DeviceAddress device_sums(MutableBytes accumulator) override {
    return inner_->device_sums(accumulator);
  }
  Result<void> take_memory(std::span<const MutableBytes> accumulators, bool other) override {
    return inner_->take_memory(accumulators, other);
  }
  void release(AttemptId id) override { inner_->release(id); }
  std::size_t saved_graphs() const override { return inner_->saved_graphs(); }
  bool takes_wire() const override { return inner_->takes_wire(); }
  const ParameterLayout& layout() const override { return inner_->layout(); }
  MutableBytes parameters() override { return inner_->parameters(); }
  MutableBytes other_parameters() override { return inner_->other_parameters(); }
  void exchange_parameters() override { inner_->exchange_parameters(); }
  void parameters_changed() override { inner_->parameters_changed(); }
  DeviceAddress device_parameters() override { return inner_->device_parameters(); }
  void device_parameters_changed() override { inner_->device_parameters_changed(); }
  Result<void> collect_parameters() override { return inner_->collect_parameters(); }
  Result<std::unique_ptr<DeviceOptimizer>> make_optimizer(
      const OptimizerSection& options) override {
    return inner_->make_optimizer(options);
  }
  Result<std::unique_ptr<DeviceGradients>> make_gradients() override {
    return inner_->make_gradients();
  }

 private:
  std::unique_ptr<StageModel> inner_;
};

}  // namespace swarmline
