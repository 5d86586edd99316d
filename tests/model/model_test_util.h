// Small models and data for the tests of engine/model.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/model/stage_model.h"

namespace swarmline::testing {

inline RunConfig tiny_config() {
  RunConfig config;
  config.run.seed = 11;
  config.batch.sequence = 6;
  config.model = {.layers = 4, .d_model = 32, .heads = 4, .vocab = 29, .init_std = 0.2};
  config.model.dtype = DType::kF64;
  return config;
}

inline RunConfig tiny_llama() {
  RunConfig config = tiny_config();
  config.model.kv_heads = 2;
  config.model.d_ff = 48;
  config.model.norm = NormKind::kRmsNorm;
  config.model.activation = ActivationKind::kSwiGlu;
  config.model.positions = PositionKind::kRotary;
  config.model.bias = false;
  config.model.tied_embeddings = false;
  return config;
}

// Documents of about 4 tokens in make_batch()'s batches.
inline RunConfig with_documents(RunConfig config) {
  config.data.mask_documents = true;
  config.batch.sequence = 24;
  return config;
}

inline ModelSpec resolved(const RunConfig& config) {
  Result<ModelSpec> spec = resolve_model(config, config.model.vocab, /*separator=*/3);
  if (!spec) ADD_FAILURE() << spec.error().what;
  return spec.value();
}

inline StageSpec stage_of(const ModelSpec& spec, std::uint32_t stage, std::uint32_t stages) {
  const std::uint32_t blocks = spec.shape.layers / spec.shape.share_layers;
  const auto cut = [&](std::uint32_t s) { return blocks * s / stages * spec.shape.share_layers; };
  return {StageId(static_cast<std::uint16_t>(stage)), stages, cut(stage), cut(stage + 1)};
}

inline std::unique_ptr<StageModel> make_stage(const ModelSpec& spec, const StageSpec& stage,
                                              const StageModelOptions& options = {}) {
  auto model = make_stage_model(spec, stage, options);
  if (!model) ADD_FAILURE() << model.error().what;
  return std::move(model).value();
}

// Normal values of a boundary's shape.
inline Buffer random_hidden(const ModelSpec& spec, std::uint32_t rows, Rng& rng) {
  Buffer buffer(std::size_t{rows} * spec.sequence * spec.hidden_width() * sizeof(double));
  for (double& x : buffer.as<double>()) x = rng.normal();
  return buffer;
}

inline AttemptId attempt_of(std::uint64_t step, std::uint32_t index, std::uint64_t attempt = 0) {
  return {{{PhaseKind::kTrain, step}, index}, Attempt(attempt)};
}

struct Batch {
  std::uint32_t rows = 0;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  template <typename T>
  static BytesView view(const std::vector<T>& values) {
    return std::as_bytes(std::span(values));
  }
};

inline Batch make_batch(const ModelSpec& spec, std::uint32_t rows, std::uint64_t seed = 5) {
  Rng rng(seed);
  Batch batch{.rows = rows};
  for (std::uint32_t i = 0; i < rows * spec.sequence; ++i) {
    batch.tokens.push_back(static_cast<std::int32_t>(rng.below(spec.shape.vocab)));
    batch.targets.push_back(static_cast<std::int32_t>(rng.below(spec.shape.vocab)));
  }
  if (!spec.mask_documents) return batch;
  for (std::size_t i = 0; i < batch.targets.size(); i += 1 + i % 7)
    batch.targets[i] = static_cast<std::int32_t>(spec.separator);
  return batch;
}

inline RunConfig with_boundary(RunConfig config, BoundaryKind kind, std::uint32_t factor) {
  config.model.boundary = kind;
  config.model.boundary_factor = factor;
  return config;
}

inline std::vector<StageSpec> even_cut(const ModelSpec& spec, std::uint32_t stages) {
  std::vector<StageSpec> cut;
  for (std::uint32_t s = 0; s < stages; ++s) cut.push_back(stage_of(spec, s, stages));
  return cut;
}

// A whole model as a chain of stages in this process.
class Chain {
 public:
  Chain(const ModelSpec& spec, std::uint32_t stages, const StageModelOptions& options = {})
      : Chain(spec, even_cut(spec, stages), options) {}
  Chain(const ModelSpec& spec, const std::vector<StageSpec>& cut,
        const StageModelOptions& options = {}) {
    for (const StageSpec& stage : cut) {
      models_.push_back(make_stage(spec, stage, options));
      gradients_.push_back(Buffer::zeroed(models_.back()->layout().bytes()));
    }
  }

  StageModel& stage(std::size_t s) { return *models_[s]; }
  Buffer& gradient(std::size_t s) { return gradients_[s]; }

  double forward(const Batch& batch, AttemptId id, double loss_scale = 1, bool train = true) {
    Buffer hidden;
    double loss = 0;
    for (std::size_t s = 0; s < models_.size(); ++s) {
      ForwardInput input{.id = id, .train = train, .rows = batch.rows, .loss_scale = loss_scale};
      if (s == 0) input.tokens = Batch::view(batch.tokens);
      input.hidden = hidden.bytes();
      input.targets = Batch::view(batch.targets);  // stages that need none don't look at them
      auto output = models_[s]->forward(input);
      if (!output) ADD_FAILURE() << output.error().what;
      EXPECT_TRUE(output->finite);
      hidden = std::move(output->hidden);
      loss = output->loss_sum;
    }
    return loss;
  }

  void backward(AttemptId id, double scale = 1, bool keep_graph = false) {
    Buffer gradient;
    for (std::size_t s = models_.size(); s-- > 0;) {
      auto output = models_[s]->backward({.id = id,
                                          .output_gradient = gradient.bytes(),
                                          .scale = scale,
                                          .keep_graph = keep_graph,
                                          .accumulator = gradients_[s].bytes()});
      if (!output) ADD_FAILURE() << output.error().what;
      EXPECT_TRUE(output->finite);
      gradient = std::move(output->input_gradient);
      EXPECT_TRUE(models_[s]->collect_sums(gradients_[s].bytes()));
    }
  }

  // Elements of the named tensor, summed over the stages that hold it (a tied embedding).
  std::vector<double> gradient_of(const std::string& name) const {
    std::vector<double> sum;
    for (std::size_t s = 0; s < models_.size(); ++s) {
      const ParameterLayout& layout = models_[s]->layout();
      for (const ParameterSlot& slot : layout.slots) {
        if (slot.name != name) continue;
        sum.resize(slot.elements);
        for (std::uint64_t i = 0; i < slot.elements; ++i) {
          sum[i] += element(layout, gradients_[s], slot.offset + i);
        }
      }
    }
    EXPECT_FALSE(sum.empty()) << name;
    return sum;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& model : models_) {
      for (const ParameterSlot& slot : model->layout().slots) names.push_back(slot.name);
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  static double element(const ParameterLayout& layout, const Buffer& buffer, std::uint64_t i) {
    return layout.dtype == DType::kF64 ? buffer.as<double>()[i] : buffer.as<float>()[i];
  }

 private:
  std::vector<std::unique_ptr<StageModel>> models_;
  std::vector<Buffer> gradients_;
};

// Largest |a - b| over the largest |b|.
inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0;
  double largest = 1e-300;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return INFINITY;
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference / largest;
}

}  // namespace swarmline::testing
