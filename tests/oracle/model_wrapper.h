// A stage model that hands everything on; tests override what they break or watch.
#pragma once

#include <memory>
#include <utility>

#include "engine/model/stage_model.h"

namespace swarmline::oracle {

class ModelWrapper : public StageModel {
 public:
  explicit ModelWrapper(std::unique_ptr<StageModel> inner) : inner_(std::move(inner)) {}
  Result<ForwardOutput> forward(const ForwardInput& input) override {
    return inner_->forward(input);
  }
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    return inner_->backward(input);
  }
  void release(AttemptId id) override { inner_->release(id); }
  std::size_t saved_graphs() const override { return inner_->saved_graphs(); }
  const ParameterLayout& layout() const override { return inner_->layout(); }
  MutableBytes parameters() override { return inner_->parameters(); }
  void parameters_changed() override { inner_->parameters_changed(); }

 private:
  std::unique_ptr<StageModel> inner_;
};

// For SimClusterOptions::make_model: the real model inside Wrapper(model, stage, extra...).
template <typename Wrapper, typename... Extra>
auto wrapped(Extra... extra) {
  return [extra...](const ModelSpec& spec, const StageSpec& stage,
                    const StageModelOptions& options) -> Result<std::unique_ptr<StageModel>> {
    auto model = make_stage_model(spec, stage, options);
    if (!model) return model;
    return std::make_unique<Wrapper>(std::move(*model), stage, extra...);
  };
}

}  // namespace swarmline::oracle
