#include "pipeline/reference/reference_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "balancer/cut.h"
#include "base/byte_ops.h"
#include "base/check.h"
#include "base/rng.h"
#include "engine/optimizer/flat_optimizer.h"

namespace swarmline {
namespace {

using Kind = ReferenceMutation::Kind;

// What a mutation of one microbatch acts on.
constexpr std::uint64_t kMutatedStep = 1;
constexpr std::uint32_t kMutatedIndex = 1;

template <typename T>
void add_scaled(std::span<T> to, std::span<const T> from, double scale) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += static_cast<T>(scale) * from[i];
}

// Layer number of a parameter's name, "layers.3.mlp.up.weight"; -1 outside the layers.
int layer_of(const std::string& name) {
  constexpr std::string_view prefix = "layers.";
  if (!name.starts_with(prefix)) return -1;
  return std::stoi(name.substr(prefix.size()));
}

class Trainer {
 public:
  Trainer(const ReferenceOptions& options, MicrobatchSource& source,
          std::unique_ptr<StageModel> model)
      : options_(options),
        config_(&options.config),
        source_(&source),
        model_(std::move(model)),
        layout_(model_->layout()),
        optimizer_(config_->optimizer, layout_),
        newest_(Buffer::copy_of(model_->parameters())),
        gradient_(Buffer::zeroed(layout_.bytes())),
        scratch_(needs_scratch() ? Buffer::zeroed(layout_.bytes()) : Buffer()),
        tokens_(row_tokens()),
        targets_(row_tokens()) {
    // What is taken from a scratch is added on the host.
    SWARMLINE_CHECK(!needs_scratch() || !model_->keeps_sums());
  }

  Result<void> go_on_with(const ReferenceSegment& segment);
  Result<ReferenceStep> train_step(std::uint64_t step);
  Result<double> evaluate(std::uint64_t version);
  ReferenceResult take_result() {
    return {.parameters = std::move(newest_), .layout = layout_, .eval_loss = 0};
  }

 private:
  std::size_t row_tokens() const {
    return std::size_t{config_->batch.microbatch} * config_->batch.sequence;
  }
  bool needs_scratch() const {
    return options_.mutation.kind == Kind::kMissAtOneStage ||
           options_.mutation.kind == Kind::kClipBeforeReduce;
  }
  bool mutated(std::uint64_t step, std::uint32_t index) const {
    const std::uint32_t target = std::min(kMutatedIndex, config_->microbatches_per_step() - 1);
    return step == kMutatedStep && index == target;
  }
  std::vector<std::uint32_t> sum_order(std::uint64_t step) const;
  Result<double> forward(const AttemptId& id, bool train);
  Result<double> add_microbatch(std::uint64_t step, std::uint32_t index);
  Result<void> backward(const AttemptId& id, double scale, MutableBytes accumulator);
  void add_scratch(double scale, bool first_half_missing);
  Result<void> apply(std::uint64_t step, ReferenceStep& report);
  void compute_on(BytesView parameters);

  const ReferenceOptions& options_;
  const RunConfig* config_;  // of the segment
  MicrobatchSource* source_;
  std::unique_ptr<StageModel> model_;  // its parameters: the version computed on
  const ParameterLayout& layout_;
  FlatOptimizer optimizer_;
  Buffer newest_;  // the version that the next update applies to
  Buffer gradient_;
  Buffer scratch_;
  std::vector<std::int32_t> tokens_, targets_;
  std::uint64_t updates_ = 0;
};

std::vector<std::uint32_t> Trainer::sum_order(std::uint64_t step) const {
  std::vector<std::uint32_t> order(config_->microbatches_per_step());
  std::iota(order.begin(), order.end(), 0U);
  if (options_.permute_sums == 0) return order;
  Rng rng = Rng(options_.permute_sums).split("permute sums").split(step);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

Result<double> Trainer::forward(const AttemptId& id, bool train) {
  SWARMLINE_TRY(source_->read(id.microbatch, tokens_, targets_));
  auto output = model_->forward({
      .id = id,
      .train = train,
      .rows = config_->batch.microbatch,
      .tokens = std::as_bytes(std::span(tokens_)),
      .hidden = {},
      .targets = std::as_bytes(std::span(targets_)),
      .loss_scale = 1.0 / static_cast<double>(config_->tokens_per_step()),
  });
  if (!output) return std::unexpected(std::move(output).error());
  return output->loss_sum;
}

Result<void> Trainer::backward(const AttemptId& id, double scale, MutableBytes accumulator) {
  auto output = model_->backward({
      .id = id,
      .output_gradient = {},
      .weight_gradients = true,
      .scale = scale,
      .keep_graph = false,
      .accumulator = accumulator,
  });
  if (!output) return std::unexpected(std::move(output).error());
  return {};
}

void Trainer::add_scratch(double scale, bool first_half_missing) {
  for (const ParameterSlot& slot : layout_.slots) {
    const int layer = layer_of(slot.name);
    const int half = static_cast<int>(config_->model.layers / 2);
    if (first_half_missing && layer >= 0 && layer < half) continue;
    if (layout_.dtype == DType::kF64) {
      add_scaled(gradient_.as<double>().subspan(slot.offset, slot.elements),
                 std::as_const(scratch_).as<double>().subspan(slot.offset, slot.elements), scale);
    } else {
      add_scaled(gradient_.as<float>().subspan(slot.offset, slot.elements),
                 std::as_const(scratch_).as<float>().subspan(slot.offset, slot.elements), scale);
    }
  }
}

Result<double> Trainer::add_microbatch(std::uint64_t step, std::uint32_t index) {
  const AttemptId id{{{PhaseKind::kTrain, step}, index}, Attempt{0}};
  const Kind kind = options_.mutation.kind;
  if (kind == Kind::kDropMicrobatch && mutated(step, index)) return 0.0;
  auto loss = forward(id, true);
  if (!loss) return loss;

  const bool miss = kind == Kind::kMissAtOneStage && mutated(step, index);
  if (miss || kind == Kind::kClipBeforeReduce) {
    model_->clear_sums(scratch_.bytes());
    SWARMLINE_TRY(backward(id, 1, scratch_.bytes()));
    const double norm = std::sqrt(sum_of_squares(scratch_.bytes(), layout_.dtype));
    add_scratch(miss ? 1.0 : clip_scale(config_->optimizer, norm), miss);
    return loss;
  }
  const bool twice = kind == Kind::kDoubleMicrobatch && mutated(step, index);
  SWARMLINE_TRY(backward(id, twice ? 2 : 1, gradient_.bytes()));
  return loss;
}

void Trainer::compute_on(BytesView parameters) {
  copy_bytes(parameters, model_->parameters());
  model_->parameters_changed();
}

// With delay 1 the gradient of step t is of version t - 1: the model keeps the version before the
// newest one.
Result<void> Trainer::apply(std::uint64_t step, ReferenceStep& report) {
  const double norm = std::sqrt(sum_of_squares(gradient_.bytes(), layout_.dtype));
  OptimizerSection section = config_->optimizer;
  if (options_.mutation.kind == Kind::kClipBeforeReduce) section.clip = 0;
  StepScalars scalars = step_scalars(section, step, config_->run.steps, updates_, norm);
  report.gradient_norm = norm;
  report.learning_rate = scalars.learning_rate;
  if (options_.mutation.kind == Kind::kLearningRate) scalars.learning_rate *= 1.01;

  if (config_->pipeline.delay == 1) compute_on(newest_.bytes());
  if (!std::isfinite(norm)) {
    if (config_->run.on_nonfinite != NonFinite::kSkip) {
      return fail(ErrorCode::kDevice,
                  fmt::format("step {}: the gradient is not finite; lower optimizer.lr, or set "
                              "run.on_nonfinite = \"skip\" to go on without such steps",
                              step + 1));
    }
  } else {
    SWARMLINE_TRY(optimizer_.step(scalars, gradient_.bytes(), newest_.bytes()));
    ++updates_;
  }
  if (config_->pipeline.delay == 0) compute_on(newest_.bytes());
  return {};
}

// Where a delay ends the newest version is computed on; where it begins, that is so already.
Result<void> Trainer::go_on_with(const ReferenceSegment& segment) {
  config_ = &segment.config;
  source_ = segment.source;
  tokens_.resize(row_tokens());
  targets_.resize(row_tokens());
  FlatOptimizer next(config_->optimizer, layout_);
  for (const Moment moment : {Moment::kFirst, Moment::kSecond}) {
    auto from = optimizer_.moment(moment);
    if (!from) return std::unexpected(std::move(from).error());
    auto to = next.moment(moment);
    if (!to) return std::unexpected(std::move(to).error());
    copy_bytes(*from, *to);
  }
  SWARMLINE_TRY(next.moments_changed());
  optimizer_ = std::move(next);
  if (config_->pipeline.delay == 0) compute_on(newest_.bytes());
  return {};
}

Result<ReferenceStep> Trainer::train_step(std::uint64_t step) {
  model_->clear_sums(gradient_.bytes());
  std::vector<double> losses(config_->microbatches_per_step());
  for (const std::uint32_t index : sum_order(step)) {
    auto loss = add_microbatch(step, index);
    if (!loss) return std::unexpected(std::move(loss).error());
    losses[index] = *loss;
  }
  SWARMLINE_TRY(model_->collect_sums(gradient_.bytes()));
  ReferenceStep report{.step = step, .tokens = config_->tokens_per_step()};
  report.loss = std::accumulate(losses.begin(), losses.end(), 0.0) /
                static_cast<double>(config_->tokens_per_step());
  SWARMLINE_TRY(apply(step, report));
  return report;
}

Result<double> Trainer::evaluate(std::uint64_t version) {
  compute_on(newest_.bytes());
  const std::uint64_t rows = config_->batch.microbatch;
  const std::uint64_t microbatches = options_.eval_sequences / rows;
  double sum = 0;
  for (std::uint32_t index = 0; index < microbatches; ++index) {
    auto loss = forward({{{PhaseKind::kEval, version}, index}, Attempt{0}}, false);
    if (!loss) return loss;
    sum += *loss;
  }
  return sum / static_cast<double>(microbatches * rows * config_->batch.sequence);
}

// Learned boundaries are part of the model, and where they are depends on the swarm's cut.
Result<StageSpec> whole_as_cut(const ReferenceOptions& options) {
  if (!options.model.has_boundary()) return whole_model(options.model, {});
  const auto cut =
      cut_layers(model_costs(options.model), {.stages = options.config.pipeline.stages,
                                              .share_layers = options.model.shape.share_layers,
                                              .stage_speeds = {},
                                              .layers = options.config.pipeline.layers});
  if (!cut) return std::unexpected(cut.error());
  return whole_model(options.model, *cut);
}

}  // namespace

Result<ReferenceResult> run_reference(const ReferenceOptions& options, MicrobatchSource& source,
                                      const std::function<void(const ReferenceStep&)>& on_step) {
  auto whole_stage = whole_as_cut(options);
  if (!whole_stage) return std::unexpected(std::move(whole_stage).error());
  const StageSpec& whole = *whole_stage;
  const StageModelOptions model_options{
      .device = options.device,
      .threads = options.threads,
      .recompute = options.config.pipeline.recompute == Recompute::kAlways};
  auto model = options.make_model ? options.make_model(options.model, whole, model_options)
                                  : make_stage_model(options.model, whole, model_options);
  if (!model) return std::unexpected(std::move(model).error());
  if (options.initial) {
    SWARMLINE_TRY(options.initial((*model)->layout(), (*model)->parameters()));
    (*model)->parameters_changed();
  }
  SWARMLINE_CHECK(options.eval_sequences % options.config.batch.microbatch == 0);

  Trainer trainer(options, source, std::move(*model));
  for (std::uint64_t step = 0; step < options.config.run.steps; ++step) {
    for (const ReferenceSegment& segment : options.segments)
      if (segment.first_step == step) SWARMLINE_TRY(trainer.go_on_with(segment));
    auto report = trainer.train_step(step);
    if (!report) return std::unexpected(std::move(report).error());
    if (on_step) on_step(*report);
  }
  double eval_loss = 0;
  if (options.eval_sequences > 0) {
    auto loss = trainer.evaluate(options.config.run.steps);
    if (!loss) return std::unexpected(std::move(loss).error());
    eval_loss = *loss;
  }
  ReferenceResult result = trainer.take_result();
  result.boundaries = whole.inner_boundaries;
  result.eval_loss = eval_loss;
  return result;
}

}  // namespace swarmline
