// A model that keeps its gradient sums to itself, as a device's does. Until they are collected the
// caller's bytes are no numbers, so that whoever reads them too early spoils the run.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "base/byte_ops.h"
#include "base/check.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/model_wrapper.h"

namespace swarmline {

class KeptSumsModel final : public ModelWrapper {
 public:
  using ModelWrapper::ModelWrapper;

  bool keeps_sums() const override { return true; }
  void clear_sums(MutableBytes accumulator) override {
    Buffer& sums = kept_[accumulator.data()];  // where they are on a device they stay
    if (sums.empty()) sums = Buffer(accumulator.size());
    fill_bytes(sums.bytes(), std::byte{0});
    spoil(accumulator);
    SWARMLINE_CHECK(kept_.size() <= kAccumulatorsMax);
  }
  Result<void> collect_sums(MutableBytes accumulator) override {
    copy_bytes(kept(accumulator).bytes(), accumulator);
    ++collected_;
    return {};
  }
  DeviceAddress device_sums(MutableBytes accumulator) override { return kept(accumulator).data(); }
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    BackwardInput inner = input;
    if (input.weight_gradients) inner.accumulator = added_to(input.accumulator);
    return ModelWrapper::backward(inner);
  }
  Result<void> add_weight_gradients(AttemptId id, MutableBytes accumulator) override {
    return ModelWrapper::add_weight_gradients(id, added_to(accumulator));
  }
  int collected() const { return collected_; }

 private:
  static void spoil(MutableBytes bytes) { fill_bytes(bytes, std::byte{0xFF}); }
  Buffer& kept(MutableBytes accumulator) {
    const auto found = kept_.find(accumulator.data());
    SWARMLINE_CHECK_MSG(found != kept_.end(), "sums that nobody began");
    return found->second;
  }
  MutableBytes added_to(MutableBytes accumulator) {
    spoil(accumulator);
    return kept(accumulator).bytes();
  }

  std::map<const std::byte*, Buffer> kept_;
  int collected_ = 0;
};

inline Result<std::unique_ptr<StageModel>> make_kept_sums_model(const ModelSpec& spec,
                                                                const StageSpec& stage,
                                                                const StageModelOptions&) {
  return std::make_unique<KeptSumsModel>(std::make_unique<FakeStageModel>(spec, stage));
}

}  // namespace swarmline
