#include "bench/stage/stage_drive.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/byte_ops.h"
#include "base/order_statistics.h"
#include "base/rng.h"
#include "bench/stage/device_side.h"
#include "pipeline/stage/common/parameter_state.h"

namespace swarmline::bench {
namespace {

constexpr std::uint32_t kVocab = 257;  // nothing of a middle stage depends on it
// Of a width of 1. Adam moves each weight of a row by as much in its first step, so that an output
// of `width` weights moves by a share of its size that does not depend on the width.
constexpr double kLearningRate = 0.2;
constexpr std::size_t kCopyBytes = std::size_t{256} << 20;

RunConfig config_of(const StageOptions& options, const StageKind& kind) {
  RunConfig config;
  config.run.steps = options.rounds + kWarmUpRounds;
  config.model.layers = options.layers + 2;  // one before and one behind
  config.model.d_model = options.width;
  config.model.heads = options.heads;
  config.model.activation = kind.activation;
  config.model.compute = kind.compute;
  config.model.positions = PositionKind::kRotary;
  if (kind.activation == ActivationKind::kSwiGlu) {
    config.model.norm = NormKind::kRmsNorm;
    config.model.bias = false;
  }
  config.batch = {.batch = options.rows, .microbatch = options.rows, .sequence = options.sequence};
  config.pipeline.stages = 3;
  config.pipeline.peers = {1, 1, 1};
  config.optimizer.lr = kLearningRate / options.width;
  config.optimizer.schedule = LearningSchedule::kConstant;
  config.optimizer.state = options.state;
  return config;
}

Buffer random_values(std::uint64_t seed, std::size_t elements) {
  Buffer made(elements * sizeof(float));
  Rng rng(seed);
  // Uniform with the variance of what a norm gives: as good as normal ones here, and drawn in time.
  for (float& value : made.as<float>()) value = (unit_float(rng.next_u32()) * 2 - 1) * 1.7320508F;
  return made;
}

double relative_distance(const Buffer& a, const Buffer& b) {
  double apart = 0, size = 0;
  const auto x = a.as<float>(), y = b.as<float>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    apart += difference * difference;
    size += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return std::sqrt(apart / size);
}

class Drive {
 public:
  Drive(const StageOptions& options, RunConfig config, ModelSpec spec,
        std::unique_ptr<StageModel> model)
      : options_(options),
        config_(std::move(config)),
        spec_(std::move(spec)),
        model_(std::move(model)),
        state_(*model_, config_),
        elements_(std::size_t{options.rows} * options.sequence * options.width),
        target_(random_values(2, elements_)),
        input_(encode(options.codec, random_values(1, elements_).bytes(), DType::kF32)) {}

  Result<void> open_codec();
  Result<void> compare_with_plain(StageReport& report);
  // One training step of one microbatch; the loss.
  Result<double> round(std::uint64_t step);
  void forget_times() { times_.clear(); }
  void summarize(StageReport& report);

 private:
  struct Passed {
    Buffer output, gradient;  // wire buffers
    Buffer sums;
  };
  // One microbatch, its weight gradients added later; the same from plain values, added at once.
  Result<Passed> pass_by_wire();
  Result<Passed> pass_by_values(BytesView gradient);
  // Wire buffers in and out; what the model does by itself and what the host does for it.
  Result<Buffer> forward_by_wire(AttemptId id);
  Result<Buffer> backward_by_wire(AttemptId id, BytesView gradient);
  Result<void> time_codec(BytesView wire);
  Result<void> add_and_collect(AttemptId id, std::uint64_t step);
  Result<void> commit(std::uint64_t step);
  // Of the output that travels in `wire`: the loss, and its gradient as it would arrive.
  Result<double> judge(BytesView wire, Buffer& gradient) const;
  Result<Buffer> decoded(BytesView wire) const;

  template <typename Body>
  auto timed(const char* form, Body&& body) {
    decltype(body()) result = std::unexpected(Error{});
    times_[form].push_back(microseconds(options_.device, [&] { result = body(); }));
    return result;
  }
  double median_of(const char* form) const { return median(times_.at(form)); }
  static AttemptId attempt(std::uint64_t step, std::uint32_t number = 0) {
    return {{{PhaseKind::kTrain, step}, 0}, Attempt{number}};
  }
  WireRequest request() const { return {.codec = options_.codec, .key = std::nullopt}; }

  const StageOptions& options_;
  const RunConfig config_;
  const ModelSpec spec_;
  const std::unique_ptr<StageModel> model_;
  ParameterState state_;
  const std::size_t elements_;
  const Buffer target_;
  const Buffer input_;  // a wire buffer
  std::unique_ptr<WireCodec> codec_;
  std::map<std::string, std::vector<double>> times_;
};

Result<void> Drive::open_codec() {
  auto codec = make_wire_codec(options_.device, *model_, elements_);
  if (!codec) return std::unexpected(std::move(codec).error());
  codec_ = std::move(*codec);
  return {};
}

Result<Buffer> Drive::decoded(BytesView wire) const {
  Buffer values(elements_ * sizeof(float));
  SWARMLINE_TRY(decode(wire, DType::kF32, values.bytes()));
  return values;
}

Result<Buffer> Drive::forward_by_wire(AttemptId id) {
  ForwardInput input{.id = id, .rows = options_.rows};
  Buffer values;
  if (model_->takes_wire()) {
    input.hidden_wire = input_.bytes();
    input.as_wire = request();
  } else {
    auto taken = decoded(input_.bytes());
    if (!taken) return taken;
    values = std::move(*taken);
    input.hidden = values.bytes();
  }
  auto output = model_->forward(input);
  if (!output) return std::unexpected(std::move(output).error());
  if (!output->finite) return fail(ErrorCode::kCorrupt, "the stage's output is not finite");
  if (model_->takes_wire()) return std::move(output->hidden);
  return encode(options_.codec, output->hidden.bytes(), DType::kF32);
}

Result<Buffer> Drive::backward_by_wire(AttemptId id, BytesView gradient) {
  BackwardInput input{.id = id, .add_later = true, .accumulator = {}};
  Buffer values;
  if (model_->takes_wire()) {
    input.output_gradient_wire = gradient;
    input.as_wire = request();
  } else {
    auto taken = decoded(gradient);
    if (!taken) return taken;
    values = std::move(*taken);
    input.output_gradient = values.bytes();
  }
  auto output = model_->backward(input);
  if (!output) return std::unexpected(std::move(output).error());
  if (!output->finite) return fail(ErrorCode::kCorrupt, "the stage's gradient is not finite");
  if (model_->takes_wire()) return std::move(output->input_gradient);
  return encode(options_.codec, output->input_gradient.bytes(), DType::kF32);
}

Result<double> Drive::judge(BytesView wire, Buffer& gradient) const {
  auto output = decoded(wire);
  if (!output) return std::unexpected(std::move(output).error());
  const auto y = output->as<float>();
  const auto wanted = target_.as<float>();
  const auto tokens = static_cast<float>(std::size_t{options_.rows} * options_.sequence);
  double squares = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float apart = y[i] - wanted[i];
    squares += static_cast<double>(apart) * static_cast<double>(apart);
    y[i] = apart / tokens;
  }
  gradient = encode(options_.codec, output->bytes(), DType::kF32);
  return squares / (2 * static_cast<double>(y.size()));
}

Result<Drive::Passed> Drive::pass_by_wire() {
  state_.begin(0);
  auto output = forward_by_wire(attempt(0, 0));
  if (!output) return std::unexpected(std::move(output).error());
  Passed passed{.output = std::move(*output), .gradient = {}, .sums = {}};
  auto loss = judge(passed.output.bytes(), passed.gradient);
  if (!loss) return std::unexpected(std::move(loss).error());
  auto back = backward_by_wire(attempt(0, 0), passed.gradient.bytes());
  if (!back) return std::unexpected(std::move(back).error());
  SWARMLINE_TRY(add_and_collect(attempt(0, 0), 0));
  passed.sums = Buffer::copy_of(state_.accumulator(0));
  return passed;
}

Result<Drive::Passed> Drive::pass_by_values(BytesView gradient) {
  state_.begin(0);
  const auto values = decoded(input_.bytes());
  if (!values) return std::unexpected(values.error());
  const auto gradient_values = decoded(gradient);
  if (!gradient_values) return std::unexpected(gradient_values.error());
  auto output = model_->forward(
      {.id = attempt(0, 1), .rows = options_.rows, .tokens = {}, .hidden = values->bytes()});
  if (!output) return std::unexpected(std::move(output).error());
  auto back = model_->backward({.id = attempt(0, 1),
                                .output_gradient = gradient_values->bytes(),
                                .output_gradient_wire = {},
                                .accumulator = state_.accumulator(0)});
  if (!back) return std::unexpected(std::move(back).error());
  SWARMLINE_TRY(state_.collect(0));
  return Passed{.output = encode(options_.codec, output->hidden.bytes(), DType::kF32),
                .gradient = {},
                .sums = Buffer::copy_of(state_.accumulator(0))};
}

Result<void> Drive::compare_with_plain(StageReport& report) {
  const auto wire = pass_by_wire();
  if (!wire) return std::unexpected(wire.error());
  const auto plain = pass_by_values(wire->gradient.bytes());
  if (!plain) return std::unexpected(plain.error());
  times_.clear();
  if (!same_bytes(plain->output.bytes(), wire->output.bytes()))
    return fail(ErrorCode::kCorrupt, "the output's wire buffer is not that of its values");
  report.sums_apart = relative_distance(plain->sums, wire->sums);
  const double allowed = options_.device == "cpu" ? 0 : kSumsApart;
  if (report.sums_apart <= allowed) return {};
  return fail(ErrorCode::kCorrupt,
              fmt::format("gradients added later are {:.3g} from those added at once, relative",
                          report.sums_apart));
}

Result<void> Drive::time_codec(BytesView wire) {
  SWARMLINE_TRY(timed("decode", [&] { return codec_->decode(wire); }));
  auto encoded = timed("encode and copy out", [&] { return codec_->encode(options_.codec); });
  if (!encoded) return std::unexpected(std::move(encoded).error());
  return {};
}

Result<void> Drive::add_and_collect(AttemptId id, std::uint64_t step) {
  SWARMLINE_TRY(timed("weight gradients",
                      [&] { return model_->add_weight_gradients(id, state_.accumulator(step)); }));
  return timed("collect", [&] { return state_.collect(step); });
}

// Who is alone in its stage averages with nobody: its sums are the average.
Result<void> Drive::commit(std::uint64_t step) {
  std::ranges::copy(BytesView(state_.accumulator(step)), state_.reduced().begin());
  const auto squares = timed("sum of squares", [&]() -> Result<double> {
    return sum_of_squares(state_.reduced(), DType::kF32);
  });
  if (!std::isfinite(*squares)) return fail(ErrorCode::kCorrupt, "a weight gradient is not finite");
  const StepScalars scalars =
      step_scalars(config_.optimizer, step, config_.run.steps, step, std::sqrt(*squares));
  SWARMLINE_TRY(timed("apply", [&] { return state_.apply(scalars, false); }));
  auto digest = timed("digest", [&] { return state_.digest(); });
  if (!digest) return std::unexpected(std::move(digest).error());
  return {};
}

Result<double> Drive::round(std::uint64_t step) {
  const AttemptId id = attempt(step);
  state_.begin(step);
  SWARMLINE_TRY(state_.use(Version{step}));
  SWARMLINE_TRY(time_codec(input_.bytes()));
  auto output = timed("forward job", [&] { return forward_by_wire(id); });
  if (!output) return std::unexpected(std::move(output).error());
  Buffer gradient;
  auto loss = judge(output->bytes(), gradient);
  if (!loss) return loss;
  auto back = timed("backward job", [&] { return backward_by_wire(id, gradient.bytes()); });
  if (!back) return std::unexpected(std::move(back).error());
  SWARMLINE_TRY(add_and_collect(id, step));
  SWARMLINE_TRY(commit(step));
  return loss;
}

// Jobs are what a peer's device does for a microbatch; the model's part of them is what decoding
// and encoding leave.
void Drive::summarize(StageReport& report) {
  const auto values = static_cast<double>(elements_ * sizeof(float));
  const auto parameters = static_cast<double>(state_.parameter_bytes());
  const double product_flops = options_.layers * options_.rows * layer_matrix_flops(spec_) / 3;
  const double codec_us = median_of("decode") + median_of("encode and copy out");
  const auto add = [&](const char* form, double us, double bytes, double flops = 0) {
    report.figures.push_back({.form = form, .us = us, .bytes = bytes, .flops = flops});
  };
  add("decode", median_of("decode"), values);
  add("forward", median_of("forward job") - codec_us, 0, product_flops);
  add("encode and copy out", median_of("encode and copy out"), values);
  add("forward job", median_of("forward job"), 0, product_flops);
  add("backward", median_of("backward job") - codec_us, 0, product_flops);
  add("backward job", median_of("backward job"), 0, product_flops);
  add("weight gradients", median_of("weight gradients"), 0, product_flops);
  add("collect", median_of("collect"), model_->keeps_sums() ? parameters : 0);
  add("sum of squares", median_of("sum of squares"), parameters);
  add("apply", median_of("apply"), parameters);
  add("digest", median_of("digest"), static_cast<double>(state_.committed_state_bytes()));
  for (const CopyRate& rate : time_copies(options_.device, *model_, kCopyBytes, 5))
    add(rate.form, rate.us, static_cast<double>(kCopyBytes));
  report.parameters = model_->layout().elements;
}

}  // namespace

Result<StageReport> drive_stage(const StageOptions& options, const StageKind& kind) {
  RunConfig config = config_of(options, kind);
  auto spec = resolve_model(config, kVocab);
  if (!spec) return std::unexpected(std::move(spec).error());
  const StageSpec stage{.stage = StageId{1},
                        .stages = 3,
                        .first_layer = 1,
                        .last_layer = 1 + options.layers,
                        .inner_boundaries = {}};
  auto model = make_stage_model(
      *spec, stage, {.device = options.device, .threads = static_cast<int>(options.threads)});
  if (!model) return std::unexpected(std::move(model).error());
  Drive drive(options, std::move(config), std::move(*spec), std::move(*model));
  StageReport report;
  SWARMLINE_TRY(drive.open_codec());
  SWARMLINE_TRY(drive.compare_with_plain(report));
  for (std::uint64_t step = 0; step < options.rounds + kWarmUpRounds; ++step) {
    if (step == kWarmUpRounds) drive.forget_times();
    const auto loss = drive.round(step);
    if (!loss) return std::unexpected(loss.error());
    if (step == 0) report.first_loss = *loss;
    report.last_loss = *loss;
  }
  if (!(report.last_loss < report.first_loss))
    return fail(ErrorCode::kCorrupt,
                fmt::format("the loss went from {:.4g} to {:.4g}: it should fall",
                            report.first_loss, report.last_loss));
  drive.summarize(report);
  return report;
}

}  // namespace swarmline::bench
