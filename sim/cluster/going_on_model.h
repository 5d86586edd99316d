// A model whose device goes on by itself with what was begun, as a CUDA device does. A pass is over
// when it is waited for; it insists that passes are waited for in the order in which they were
// begun. Header-only; shapes, errors and thread are the other model's.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"
#include "sim/cluster/model_wrapper.h"

namespace swarmline {

class GoingOnModel final : public ModelWrapper {
 public:
  using ModelWrapper::ModelWrapper;
  bool goes_on() const override { return true; }
  BegunPass<ForwardOutput> begin_forward(const ForwardInput& input) override {
    return begin(ModelWrapper::forward(input));
  }
  BegunPass<BackwardOutput> begin_backward(const BackwardInput& input) override {
    return begin(ModelWrapper::backward(input));
  }
  BegunPass<AddedGradients> begin_weight_gradients(AttemptId id,
                                                   MutableBytes accumulator) override {
    SWARMLINE_TRY(ModelWrapper::add_weight_gradients(id, accumulator));
    return begin(Result<AddedGradients>());
  }

 private:
  struct Order {
    std::uint64_t begun = 0;
    std::uint64_t waited = 0;
  };
  template <typename Output>
  class Pass final : public Begun<Output> {
   public:
    Pass(Output output, std::shared_ptr<Order> order)
        : output_(std::move(output)), order_(std::move(order)), number_(++order_->begun) {}
    Result<void> computed() override {
      SWARMLINE_CHECK_MSG(order_->waited < number_, "a pass that was over before it was computed");
      return {};
    }
    Result<Output> wait() override {
      SWARMLINE_CHECK_MSG(order_->waited < number_, "a pass that was waited for out of turn");
      order_->waited = number_;
      return std::move(output_);
    }

   private:
    Output output_;
    std::shared_ptr<Order> order_;
    const std::uint64_t number_;
  };
  template <typename Output>
  BegunPass<Output> begin(Result<Output> output) {
    if (!output) return std::unexpected(std::move(output).error());
    return std::make_unique<Pass<Output>>(std::move(*output), order_);
  }

  std::shared_ptr<Order> order_ = std::make_shared<Order>();
};

}  // namespace swarmline
