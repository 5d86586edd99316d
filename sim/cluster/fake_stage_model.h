// A model without libtorch: every stage scales its input element by element with its parameters,
// the last one compares the mean of each token with its target. Everything that the pipeline must
// get right shows in its gradients: which microbatches, how often, at which stage, on which
// version.
//   What:      y = x * (0.5 + w); x: a function of the token at stage 0, else what came in; loss of
//              a token: 2 (mean(y) - target/vocab)^2.
//   Exact:     weight gradients are added as multiples of 2^-44, so that their sums are the same
//              bits in any order: a swarm that counts each microbatch once ends with the bits of
//              any other.
//   Shapes, ownership, errors: as engine/model/stage_model.h says; fp64 only. Thread: one at a
//   time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/model/stage_model.h"
#include "engine/model/two_arenas.h"

namespace swarmline {

class FakeStageModel final : public StageModel {
 public:
  FakeStageModel(const ModelSpec& spec, const StageSpec& stage);

  Result<ForwardOutput> forward(const ForwardInput& input) override;
  Result<BackwardOutput> backward(const BackwardInput& input) override;
  Result<void> add_weight_gradients(AttemptId id, MutableBytes accumulator) override;
  void release(AttemptId id) override { saved_.erase(id); }
  std::size_t saved_graphs() const override { return saved_.size(); }
  const ParameterLayout& layout() const override { return layout_; }
  MutableBytes parameters() override { return arenas_.in_use().bytes(); }
  MutableBytes other_parameters() override { return arenas_.other().bytes(); }
  void exchange_parameters() override { arenas_.exchange(); }
  void parameters_changed() override {}

 private:
  struct Saved {
    std::vector<double> x;
    std::vector<double> gradient;  // of y
    std::optional<double> later;   // of add_weight_gradients(): its scale
  };

  std::size_t element(std::size_t i) const { return elements_[i % elements_.size()]; }
  double factor(std::size_t i) const;
  void add(const Saved& saved, double scale, MutableBytes accumulator) const;
  std::vector<double> take_in(const ForwardInput& input) const;
  double loss(const ForwardInput& input, const std::vector<double>& y,
              std::vector<double>& gradient) const;

  ModelSpec spec_;
  StageSpec stage_;
  ParameterLayout layout_;
  TwoArenas arenas_;
  std::vector<std::size_t> elements_;  // of the arena, without the gaps between slots
  std::map<AttemptId, Saved> saved_;
};

Result<std::unique_ptr<StageModel>> make_fake_model(const ModelSpec& spec, const StageSpec& stage,
                                                    const StageModelOptions& options);

}  // namespace swarmline
