#include "tools/measure/bench_ratio.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/order_statistics.h"
#include "compression/sample_tensors.h"
#include "engine/model/model_spec.h"
#include "engine/model/product_times.h"
#include "engine/model/stage_model.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "kernels/kernels.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/common/device_queue.h"
#include "pipeline/stage/microbatches/stage_compute.h"

namespace swarmline {
namespace {

static_assert(kDeviceJobs == DeviceQueue::kAheadJobs);

constexpr std::uint32_t kStages = 3;  // the one in the middle is measured
constexpr std::uint64_t kSampleSeed = 1;
// A device's first rounds are slower: clocks rise, memory is had from the system.
constexpr double kWarmUpSeconds = 0.5;
constexpr Duration kLoopbackPatience = std::chrono::seconds(30);
constexpr std::uint32_t kSmallVocab = 257;  // of bytes, where the config names none

template <typename Work>
double seconds_of(const SecondsClock& clock, const Work& work) {
  const double start = clock();
  work();
  return clock() - start;
}

std::string text_of(const RatioShape& shape) {
  return fmt::format("hidden {}, {} layer{}, {} tokens", shape.hidden, shape.layers,
                     shape.layers == 1 ? "" : "s", shape.sequence);
}

// The config's model in other sizes.
Result<ModelSpec> spec_for(const RunConfig& config, const RatioShape& shape) {
  const ModelSection& like = config.model;
  const std::uint32_t head_width = like.head_width();
  if (shape.hidden % head_width != 0) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("--hidden {}: expected a multiple of {}, the width of a head",
                            shape.hidden, head_width));
  }
  RunConfig sized = config;
  ModelSection& model = sized.model;
  model.d_model = shape.hidden;
  model.heads = shape.hidden / head_width;
  const auto scaled = [&](std::uint32_t size, std::uint32_t by, std::uint32_t of) {
    return static_cast<std::uint32_t>(std::uint64_t{size} * by / of);
  };
  model.kv_heads = scaled(like.kv_heads, model.heads, like.heads);
  model.d_ff = scaled(like.d_ff, shape.hidden, like.d_model);
  model.layers = kStages * shape.layers;
  sized.batch.sequence = shape.sequence;
  sized.pipeline.stages = kStages;
  sized.pipeline.layers.clear();
  sized.data.mask_documents = false;  // what is computed on is no text
  return resolve_model(sized, kSmallVocab);
}

StageSpec middle_stage(const RatioShape& shape) {
  return {.stage = StageId{1},
          .stages = kStages,
          .first_layer = shape.layers,
          .last_layer = 2 * shape.layers,
          .inner_boundaries = {}};
}

Buffer sample_tensor(std::uint64_t elements, DType dtype) {
  const std::vector<float> sample = make_sample(SampleTensor::kNormal, elements, kSampleSeed);
  if (dtype == DType::kF32) return Buffer::copy_of(std::as_bytes(std::span(sample)));
  if (dtype == DType::kBF16) {
    Buffer narrow(elements * size_bytes(dtype));
    kernels::fp32_to_bf16(sample.data(), narrow.as<std::uint16_t>().data(), elements);
    return narrow;
  }
  const std::vector<double> wide(sample.begin(), sample.end());
  return Buffer::copy_of(std::as_bytes(std::span(wide)));
}

// One shape's place in the bench.
struct Case {
  ModelSpec spec;
  RatioStage stage;
  std::uint64_t activation_elements = 0;
  std::uint64_t memory_bytes = 0;
};

class RatioBench {
 public:
  RatioBench(const RatioOptions& options, const SecondsClock& clock, const RatioProgress& progress)
      : options_(options), clock_(clock), progress_(progress) {}

  Result<std::vector<RatioStage>> run(const std::vector<RatioShape>& shapes) {
    for (const RatioShape& shape : shapes) SWARMLINE_TRY(add(shape));
    std::vector<std::size_t> order(cases_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return cases_[i].stage.flops; });
    started_ = clock_();
    for (const std::size_t i : order) SWARMLINE_TRY(measure_or_leave(cases_[i]));
    if (samples_.empty()) return fail(ErrorCode::kUserMistake, nothing_fits());
    model_the_rest();
    for (Case& one : cases_) {
      for (const CodecSpec& codec : options_.codecs) SWARMLINE_TRY(measure_wire(one, codec));
    }
    std::vector<RatioStage> stages;
    for (Case& one : cases_) stages.push_back(std::move(one.stage));
    return stages;
  }

 private:
  std::uint32_t rows() const { return options_.config.batch.microbatch; }
  bool recompute() const { return options_.config.pipeline.recompute == Recompute::kAlways; }

  Result<void> add(const RatioShape& shape) {
    auto spec = spec_for(options_.config, shape);
    if (!spec) return std::unexpected(std::move(spec).error());
    const std::uint64_t elements = std::uint64_t{rows()} * shape.sequence * spec->hidden_width();
    if (elements > kRatioElementsMax) {
      return fail(ErrorCode::kUserMistake,
                  fmt::format("{}: an activation has {} elements; expected at most {}",
                              text_of(shape), elements, kRatioElementsMax));
    }
    const ParameterLayout layout = make_layout(*spec, middle_stage(shape));
    Case one{.spec = std::move(*spec),
             .stage = {.shape = shape},
             .activation_elements = elements,
             .memory_bytes = 0};
    for (const ParameterSlot& slot : layout.slots) one.stage.parameters += slot.elements;
    one.stage.flops = shape.layers * layer_matrix_flops(one.spec) * rows();
    one.stage.elements = static_cast<double>(rows()) * shape.sequence * shape.layers * shape.hidden;
    // Parameters, their gradients, a microbatch's graph and what backward holds beside it.
    one.memory_bytes =
        2 * layout.bytes() + 2 * retained_bytes(one.spec, middle_stage(shape), rows(), recompute());
    cases_.push_back(std::move(one));
    return {};
  }

  std::string nothing_fits() const {
    return fmt::format(
        "the smallest stage needs {} MB of memory, and {} MB are free: name smaller "
        "sizes with --hidden, --layers-per-stage or --seq",
        std::ranges::min(cases_, {}, &Case::memory_bytes).memory_bytes / 1'000'000,
        options_.memory_bytes / 1'000'000);
  }

  // Rising in FLOPs, so that what is known says how long the next will take.
  Result<void> measure_or_leave(Case& one) {
    RatioStage& stage = one.stage;
    progress_(text_of(stage.shape));
    const bool on_cpu = options_.device == "cpu";
    if (on_cpu && one.memory_bytes > options_.memory_bytes) {
      stage.source = RatioSource::kNoMemory;
      return {};
    }
    if (!samples_.empty() && clock_() - started_ + expected_seconds(stage) > options_.seconds) {
      stage.source = RatioSource::kNoTime;
      return {};
    }
    auto measured = measure(one);
    if (!measured && !on_cpu && measured.error().what.contains("out of memory")) {
      stage.source = RatioSource::kNoMemory;
      return {};
    }
    return measured;
  }

  double expected_seconds(const RatioStage& stage) const {
    const double once = fit_times(samples_).seconds(stage.flops, stage.elements);
    return once * (1 + options_.rounds) + kWarmUpSeconds +
           setup_per_parameter_ * static_cast<double>(stage.parameters);
  }

  Result<void> measure(Case& one) {
    RatioStage& stage = one.stage;
    Result<std::unique_ptr<StageModel>> model;
    const double setup = seconds_of(clock_, [&] {
      model = make_stage_model(
          one.spec, middle_stage(stage.shape),
          {.device = options_.device, .threads = options_.threads, .recompute = recompute()});
    });
    if (!model) return std::unexpected(std::move(model).error());
    setup_per_parameter_ = setup / static_cast<double>(stage.parameters);
    const Buffer tensor = sample_tensor(one.activation_elements, one.spec.shape.stream_dtype());
    Buffer accumulator = Buffer::zeroed((*model)->layout().bytes());
    std::vector<double> forward, backward;
    const double warm = clock_() + kWarmUpSeconds;
    for (std::uint32_t round = 0; forward.size() < static_cast<std::size_t>(options_.rounds);
         ++round) {
      const AttemptId id{.microbatch = {.index = round}, .attempt = {}};
      const bool counts = round > 0 && clock_() >= warm;
      Result<ForwardOutput> output;
      const double there = seconds_of(clock_, [&] {
        output = (*model)->forward({.id = id, .rows = rows(), .hidden = tensor.bytes()});
      });
      if (!output) return std::unexpected(std::move(output).error());
      Result<BackwardOutput> gradient;
      const double back = seconds_of(clock_, [&] {
        gradient = (*model)->backward(
            {.id = id, .output_gradient = tensor.bytes(), .accumulator = accumulator.bytes()});
      });
      if (!gradient) return std::unexpected(std::move(gradient).error());
      if (!counts) continue;
      forward.push_back(there);
      backward.push_back(back);
    }
    stage.forward_seconds = std::max(median(std::move(forward)), options_.emulate_forward_seconds);
    stage.backward_seconds =
        std::max(median(std::move(backward)), options_.emulate_backward_seconds);
    samples_.push_back(
        {stage.flops, stage.elements, stage.forward_seconds + stage.backward_seconds});
    forward_share_ = stage.forward_seconds / samples_.back().seconds;
    return measure_product(one);
  }

  // The product that widens the hidden size in the MLP, for a microbatch.
  Result<void> measure_product(Case& one) {
    const ProductShape shape{.rows = std::int64_t{rows()} * one.stage.shape.sequence,
                             .outputs = one.spec.shape.d_ff,
                             .inputs = one.stage.shape.hidden};
    const auto seconds = plain_product_seconds(options_.device, shape, options_.rounds, clock_);
    if (!seconds) return std::unexpected(seconds.error());
    one.stage.product_flops_per_second = 2.0 * static_cast<double>(shape.rows) *
                                         static_cast<double>(shape.outputs) *
                                         static_cast<double>(shape.inputs) / *seconds;
    return {};
  }

  // Forward's share hardly changes with the size; the largest measured stage's is taken.
  void model_the_rest() {
    const TimeTrend trend = fit_times(samples_);
    for (Case& one : cases_) {
      RatioStage& stage = one.stage;
      if (stage.source == RatioSource::kMeasured) continue;
      const double seconds = trend.seconds(stage.flops, stage.elements);
      stage.forward_seconds = forward_share_ * seconds;
      stage.backward_seconds = seconds - stage.forward_seconds;
    }
  }

  Result<void> measure_wire(Case& one, const CodecSpec& codec) {
    progress_(fmt::format("{}, {}", text_of(one.stage.shape), to_string(codec)));
    const DType dtype = one.spec.shape.stream_dtype();
    const Buffer tensor = sample_tensor(one.activation_elements, dtype);
    Buffer out(tensor.size());
    Buffer wire;
    std::vector<double> seconds;
    for (int round = 0; round <= options_.rounds; ++round) {
      Result<void> decoded;
      wire = Buffer();
      const double took = seconds_of(clock_, [&] {
        wire = encode(codec, tensor.bytes(), dtype);
        decoded = decode(wire.bytes(), dtype, out.bytes());
      });
      if (!decoded) return decoded;
      if (round > 0) seconds.push_back(took);
    }
    const std::uint64_t tokens = std::uint64_t{rows()} * one.stage.shape.sequence;
    const std::string targets(tokens * target_bytes(one.spec.shape.vocab), '\0');
    const auto bytes = count_socket_bytes(wire, wire, rows(), targets);
    if (!bytes) return std::unexpected(bytes.error());
    // An activation and a gradient in, an activation and a gradient out.
    one.stage.wires.push_back({.codec = codec,
                               .codec_seconds = 2 * median(std::move(seconds)),
                               .forward_bytes = bytes->forward,
                               .backward_bytes = bytes->backward});
    return {};
  }

  const RatioOptions& options_;
  const SecondsClock& clock_;
  const RatioProgress& progress_;
  std::vector<Case> cases_;
  std::vector<TimeSample> samples_;
  double started_ = 0;
  double setup_per_parameter_ = 0;
  double forward_share_ = 0;
};

// What two peers say to each other for one microbatch.
struct BoundaryTalk {
  Frame forward;
  std::vector<Frame> answers;
};

BoundaryTalk boundary_talk(const Buffer& activation, const Buffer& gradient, std::uint32_t rows,
                           const std::string& targets) {
  // Numbers of a run that has been going for a while: small ones take fewer bytes.
  constexpr AttemptId kId{.microbatch = {.phase = {.step = 1000}, .index = 100}, .attempt = {}};
  constexpr std::uint64_t kServiceNs = 100'000'000;
  const auto payload = [](const Buffer& bytes) {
    return std::vector{SharedBytes(Buffer::copy_of(bytes.bytes()))};
  };
  wire::Forward forward;
  *forward.mutable_id() = to_wire(kId);
  forward.set_era(1);
  forward.set_version(1000);
  forward.set_rows(rows);
  forward.set_targets(targets);
  wire::ForwardDone done;
  *done.mutable_id() = to_wire(kId);
  done.set_service_ns(kServiceNs);
  done.set_next_peer(2);
  wire::GradientArrived arrived;
  *arrived.mutable_id() = to_wire(kId);
  wire::Gradient back;
  *back.mutable_id() = to_wire(kId);
  back.set_era(1);
  back.set_service_ns(kServiceNs);
  return {.forward = make_frame(MessageKind::kForward, forward, payload(activation)),
          .answers = {make_frame(MessageKind::kForwardDone, done),
                      make_frame(MessageKind::kGradientArrived, arrived),
                      make_frame(MessageKind::kGradient, back, payload(gradient))}};
}

}  // namespace

Result<SocketBytes> count_socket_bytes(const Buffer& activation, const Buffer& gradient,
                                       std::uint32_t rows, const std::string& targets) {
  BoundaryTalk talk = boundary_talk(activation, gradient, rows, targets);
  AsioRuntime runtime;
  TcpNetwork network(runtime, {});
  std::shared_ptr<Connection> near, far;
  std::size_t answered = 0;
  std::optional<Error> broken;
  const auto on_closed = [&](const Error& error) { broken = error; };
  auto address = network.listen({"127.0.0.1", 0}, [&](std::shared_ptr<Connection> connection) {
    far = std::move(connection);
    const auto answer = [&](const Frame&) {
      for (Frame& frame : talk.answers) far->send(std::move(frame));
    };
    far->start({.on_frame = answer, .on_closed = on_closed});
  });
  if (!address) return std::unexpected(std::move(address).error());
  network.connect(*address, kLoopbackPatience, [&](Result<std::shared_ptr<Connection>> connection) {
    if (!connection) {
      broken = std::move(connection).error();
      return;
    }
    near = std::move(*connection);
    near->start({.on_frame = [&](const Frame&) { ++answered; }, .on_closed = on_closed});
    near->send(std::move(talk.forward));
  });
  const bool ended = runtime.run_until([&] { return broken || answered == talk.answers.size(); },
                                       kLoopbackPatience);
  if (broken) return std::unexpected(std::move(*broken));
  if (!ended) return fail(ErrorCode::kDeadline, "the loopback socket did not answer");
  return SocketBytes{.forward = near->counters().bytes_sent,
                     .backward = near->counters().bytes_received};
}

Result<std::vector<RatioStage>> measure_ratios(const RatioOptions& options,
                                               const std::vector<RatioShape>& shapes,
                                               const SecondsClock& clock,
                                               const RatioProgress& progress) {
  return RatioBench(options, clock, progress).run(shapes);
}

}  // namespace swarmline
