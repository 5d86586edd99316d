// A stage's parameters without its layers: what a shadow steps. In host memory; computes nothing.
//   Shapes, ownership: as engine/model/stage_model.h says; the arena begins as zeros.
//   Errors:            forward() and backward(): kRefused. Thread: one at a time.
#pragma once

#include <utility>

#include "engine/model/stage_model.h"

namespace swarmline {

class ArenaModel final : public StageModel {
 public:
  explicit ArenaModel(ParameterLayout layout)
      : layout_(std::move(layout)), arena_(Buffer::zeroed(layout_.bytes())) {}

  Result<ForwardOutput> forward(const ForwardInput&) override { return refusal(); }
  Result<BackwardOutput> backward(const BackwardInput&) override { return refusal(); }
  Result<void> add_weight_gradients(AttemptId, MutableBytes) override { return refusal(); }
  void release(AttemptId) override {}
  std::size_t saved_graphs() const override { return 0; }
  const ParameterLayout& layout() const override { return layout_; }
  MutableBytes parameters() override { return arena_.bytes(); }
  void parameters_changed() override {}

 private:
  static std::unexpected<Error> refusal() {
    return fail(ErrorCode::kRefused, "a shadow computes nothing");
  }

  ParameterLayout layout_;
  Buffer arena_;
};

}  // namespace swarmline
