// A stage's parameters without its layers: what a shadow steps. In host memory; computes nothing.
//   Shapes, ownership: as engine/model/stage_model.h says; the arena begins as zeros.
//   Errors:            forward() and backward(): kRefused. Thread: one at a time.
#pragma once

#include <utility>

#include "engine/model/stage_model.h"
#include "engine/model/two_arenas.h"

namespace swarmline {

class ArenaModel final : public StageModel {
 public:
  explicit ArenaModel(ParameterLayout layout)
      : layout_(std::move(layout)), arenas_(layout_.bytes()) {}

  Result<ForwardOutput> forward(const ForwardInput&) override { return refusal(); }
  Result<BackwardOutput> backward(const BackwardInput&) override { return refusal(); }
  Result<void> add_weight_gradients(AttemptId, MutableBytes) override { return refusal(); }
  void release(AttemptId) override {}
  std::size_t saved_graphs() const override { return 0; }
  const ParameterLayout& layout() const override { return layout_; }
  MutableBytes parameters() override { return arenas_.in_use().bytes(); }
  MutableBytes other_parameters() override { return arenas_.other().bytes(); }
  void exchange_parameters() override { arenas_.exchange(); }
  void parameters_changed() override {}

 private:
  static std::unexpected<Error> refusal() {
    return fail(ErrorCode::kRefused, "a shadow computes nothing");
  }

  ParameterLayout layout_;
  TwoArenas arenas_;
};

}  // namespace swarmline
