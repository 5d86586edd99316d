#include "engine/model/stage_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compression/device_codec.h"
#include "engine/model/cached_memory.h"
#include "engine/model/device_kernels.h"
#include "engine/model/dropout.h"
#include "engine/model/find_device.h"
#include "engine/model/libtorch_errors.h"
#include "engine/model/stage_network.h"
#include "engine/model/tensor_memory.h"
#include "engine/model/tensor_pass.h"

namespace swarmline {
namespace {

at::ScalarType scalar_type(DType dtype) {
  SWARMLINE_CHECK(dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16);
  return dtype == DType::kF64 ? at::kDouble : dtype == DType::kF32 ? at::kFloat : at::kBFloat16;
}

// Borrows; valid while the bytes are. libtorch has no read-only tensors.
at::Tensor borrowed(BytesView bytes, at::IntArrayRef shape, at::ScalarType type) {
  SWARMLINE_CHECK_MSG(
      static_cast<std::int64_t>(bytes.size()) ==
          c10::multiply_integers(shape) * static_cast<std::int64_t>(c10::elementSize(type)),
      "a tensor of another shape");
  return at::from_blob(const_cast<std::byte*>(bytes.data()), shape, at::TensorOptions(type));
}

// What one attempt keeps between forward and backward.
struct Saved {
  MicrobatchId microbatch;
  at::Tensor tokens;                    // stage 0
  at::Tensor targets;                   // last stage
  std::vector<DocumentSpan> documents;  // none: whole sequences
  at::Tensor input;                     // hidden as received; a graph's leaf unless recomputing
  // Hidden or the loss, with its graph; undefined when recomputing, or when there was no room for
  // the backward with it.
  at::Tensor output;
  double loss_scale = 1;
};

class TorchStageModel final : public StageModel {
 public:
  // `codec`: of the device; null where tensors cross as they are.
  TorchStageModel(const ModelSpec& spec, const StageSpec& stage, const StageModelOptions& options,
                  at::Device device, std::shared_ptr<DeviceCodec> codec);

  bool goes_on() const override { return codec_ != nullptr; }
  BegunPass<ForwardOutput> begin_forward(const ForwardInput& input) override;
  BegunPass<BackwardOutput> begin_backward(const BackwardInput& input) override;
  Result<ForwardOutput> forward(const ForwardInput& input) override {
    return waited_for(begin_forward(input));
  }
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    return waited_for(begin_backward(input));
  }
  Result<void> add_weight_gradients(AttemptId id, MutableBytes accumulator) override;
  BegunPass<AddedGradients> begin_weight_gradients(AttemptId id, MutableBytes accumulator) override;
  void release(AttemptId id) override {
    saved_.erase(id);
    later_.erase(id);
  }
  std::size_t saved_graphs() const override { return saved_.size() + later_.size(); }
  bool takes_wire() const override { return codec_ != nullptr; }
  bool keeps_sums() const override { return !device_.is_cpu(); }
  PageLock lock_pages(MutableBytes memory) override {
    return device_.is_cuda() ? lock_pages_for_device(memory) : PageLock();
  }
  void clear_sums(MutableBytes accumulator) override { sums_of(accumulator).zero_(); }
  Result<void> collect_sums(MutableBytes accumulator) override;
  Result<void> take_memory(std::span<const MutableBytes> accumulators, bool other) override;
  DeviceAddress device_sums(MutableBytes accumulator) override {
    return device_.is_cpu() ? nullptr : made_at(sums_of(accumulator));
  }
  const ParameterLayout& layout() const override { return layout_; }
  MutableBytes parameters() override { return in_use_->host.bytes(); }
  MutableBytes other_parameters() override;
  void exchange_parameters() override;
  void parameters_changed() override;
  DeviceAddress device_parameters() override;
  void device_parameters_changed() override;
  Result<void> collect_parameters() override;
  Result<std::unique_ptr<DeviceOptimizer>> make_optimizer(
      const OptimizerSection& options) override {
    return make_device_optimizer(options, layout_, device_parameters());
  }
  Result<std::unique_ptr<DeviceGradients>> make_gradients() override {
    return make_device_gradients(device_.index());
  }

 private:
  Result<Saved> take_in(const ForwardInput& input) const;
  std::vector<DocumentSpan> documents_of(const ForwardInput& input) const;
  // On the device, from a wire buffer or from values; these are only borrowed on the CPU.
  Result<at::Tensor> take_hidden(BytesView values, BytesView wire, at::IntArrayRef shape) const;
  template <typename Output>
  static Result<Output> waited_for(BegunPass<Output> pass) {
    if (!pass) return std::unexpected(std::move(pass).error());
    return (*pass)->wait();
  }
  BegunPass<ForwardOutput> give_forward(const ForwardInput& input, const at::Tensor& hidden) const;
  BegunPass<BackwardOutput> give_backward(const BackwardInput& input,
                                          const at::Tensor& gradient) const;
  // Sets output (and, at stage 0, input) of `saved`, with a graph if autograd is on.
  void compute(Saved& saved, bool train);
  BegunPass<ForwardOutput> run_forward(const ForwardInput& input);
  BegunPass<BackwardOutput> run_backward(const BackwardInput& input, Saved& saved);
  BegunPass<BackwardOutput> try_backward(const BackwardInput& input, Saved& saved);
  Error judged(Error error) const {
    return device_.is_cpu() ? error : judged_on_device(std::move(error));
  }
  Result<at::Tensor> output_gradient(const BackwardInput& input, const Saved& saved) const;
  at::Tensor sums_of(MutableBytes accumulator);
  // One version of the parameters and the layers over it.
  struct Version {
    Buffer host;
    PageLock pages;
    bool host_is_older = false;
    Arenas arenas;
    std::unique_ptr<StageNetwork> network;
  };
  void refresh_copies();
  std::unique_ptr<Version> make_version(const StageNetwork* like);  // null: the first one
  StageNetwork& network() { return *in_use_->network; }

  const ModelSpec spec_;
  const StageSpec stage_;
  const at::Device device_;
  const bool recompute_;
  const ParameterLayout layout_;
  const at::ScalarType type_;         // of the parameters
  const at::ScalarType stream_type_;  // of hidden states
  std::unique_ptr<Version> in_use_;
  std::unique_ptr<Version> other_;                      // null until it is asked for
  const std::shared_ptr<DeviceCodec> codec_;            // shared with samples
  std::map<const std::byte*, at::Tensor> device_sums_;  // by accumulator; empty on the CPU
  std::map<AttemptId, Saved> saved_;
  struct Later {  // weight gradients that are still to be added
    GradientSink::Kept gradients;
    double scale = 1;
  };
  std::map<AttemptId, Later> later_;
};

TorchStageModel::TorchStageModel(const ModelSpec& spec, const StageSpec& stage,
                                 const StageModelOptions& options, at::Device device,
                                 std::shared_ptr<DeviceCodec> codec)
    : spec_(spec),
      stage_(stage),
      device_(device),
      recompute_(options.recompute),
      layout_(make_layout(spec, stage)),
      type_(scalar_type(spec.shape.dtype)),
      stream_type_(scalar_type(spec.shape.stream_dtype())),
      in_use_(make_version(nullptr)),
      codec_(std::move(codec)) {
  initialise_parameters(spec_, layout_, in_use_->host.data());
  parameters_changed();
}

std::unique_ptr<TorchStageModel::Version> TorchStageModel::make_version(const StageNetwork* like) {
  auto version = std::make_unique<Version>();
  version->host = Buffer(layout_.bytes());
  version->pages = lock_pages(version->host.bytes());
  const auto elements = static_cast<std::int64_t>(layout_.elements);
  version->arenas = arenas_over(
      spec_, device_.is_cpu() ? borrowed(version->host.bytes(), {elements}, type_)
                              : at::empty({elements}, at::TensorOptions(type_).device(device_)));
  version->network = like != nullptr
                         ? std::make_unique<StageNetwork>(*like, layout_, version->arenas)
                         : std::make_unique<StageNetwork>(spec_, stage_, layout_, version->arenas);
  return version;
}

MutableBytes TorchStageModel::other_parameters() {
  if (!other_) other_ = make_version(in_use_->network.get());
  return other_->host.bytes();
}

void TorchStageModel::exchange_parameters() {
  other_parameters();
  std::swap(in_use_, other_);
}

void TorchStageModel::parameters_changed() {
  const auto elements = static_cast<std::int64_t>(layout_.elements);
  {
    at::NoGradGuard no_graph;
    if (!device_.is_cpu())
      in_use_->arenas.values.copy_(borrowed(in_use_->host.bytes(), {elements}, type_));
  }
  in_use_->host_is_older = false;
  refresh_copies();
}

DeviceAddress TorchStageModel::device_parameters() {
  if (!device_.is_cuda() || type_ != at::kFloat) return nullptr;
  return static_cast<DeviceAddress>(in_use_->arenas.values.data_ptr());
}

void TorchStageModel::device_parameters_changed() {
  in_use_->host_is_older = true;
  refresh_copies();
}

Result<void> TorchStageModel::collect_parameters() {
  if (!in_use_->host_is_older) return {};
  return guarded<void>("collecting parameters", [&]() -> Result<void> {
    at::NoGradGuard no_graph;
    const at::Tensor& values = in_use_->arenas.values;
    borrowed(in_use_->host.bytes(), values.sizes(), type_).copy_(values);
    in_use_->host_is_older = false;
    return {};
  });
}

// Of the parameters, in the types that layers compute in.
void TorchStageModel::refresh_copies() {
  network().parameters_changed();
  at::NoGradGuard no_graph;
  const Arenas& arenas = in_use_->arenas;
  if (!arenas.compute.is_same(arenas.values)) arenas.compute.copy_(arenas.values);
}

Result<at::Tensor> TorchStageModel::take_hidden(BytesView values, BytesView wire,
                                                at::IntArrayRef shape) const {
  if (wire.empty()) return borrowed(values, shape, stream_type_).to(device_);
  SWARMLINE_CHECK_MSG(takes_wire(), "a wire buffer for a model that takes none");
  const at::Tensor hidden = at::empty(shape, at::TensorOptions(stream_type_).device(device_));
  SWARMLINE_TRY(codec_->decode(wire, device_values(hidden)));
  return hidden;
}

// A sum holds NaN or Inf if any element does, at one pass and without a temporary.
BegunPass<ForwardOutput> TorchStageModel::give_forward(const ForwardInput& input,
                                                       const at::Tensor& hidden) const {
  const bool is_loss = stage_.has_head();
  const bool wanted = !is_loss && input.give_hidden;
  const auto take = [is_loss](ForwardOutput& to, Buffer given, double number) {
    to.hidden = std::move(given);
    to.finite = std::isfinite(number);
    if (is_loss) to.loss_sum = number;
  };
  return give<ForwardOutput>(codec_, wanted ? &hidden : nullptr, input.as_wire,
                             is_loss ? hidden : hidden.sum(), take);
}

BegunPass<BackwardOutput> TorchStageModel::give_backward(const BackwardInput& input,
                                                         const at::Tensor& gradient) const {
  const bool wanted = !stage_.has_embedding() && input.give_input_gradient;
  const auto take = [](BackwardOutput& to, Buffer given, double number) {
    to.input_gradient = std::move(given);
    to.finite = std::isfinite(number);
  };
  return give<BackwardOutput>(codec_, wanted ? &gradient : nullptr, input.as_wire, gradient.sum(),
                              take);
}

std::vector<DocumentSpan> TorchStageModel::documents_of(const ForwardInput& input) const {
  const std::size_t tokens = std::size_t{input.rows} * spec_.sequence;
  SWARMLINE_CHECK_MSG(input.targets.size() == tokens * sizeof(std::int32_t),
                      "targets of another shape");
  std::vector<std::int32_t> targets(tokens);
  std::memcpy(targets.data(), input.targets.data(), input.targets.size());
  return document_spans(targets, spec_.sequence, spec_.separator,
                        device_.is_cpu() ? kTogetherOnCpu : kTogetherOnCuda);
}

Result<Saved> TorchStageModel::take_in(const ForwardInput& input) const {
  const auto tokens = static_cast<std::int64_t>(input.rows) * spec_.sequence;
  const auto take = [&](BytesView bytes, at::Tensor& to) -> Result<void> {
    const at::Tensor here = borrowed(bytes, {tokens}, at::kInt);
    if (codec_ == nullptr) {
      to = here.to(device_, /*non_blocking=*/false, /*copy=*/true);
      return {};
    }
    // A copy of libtorch's would wait for the pass before.
    to = at::empty_like(here, at::TensorOptions().device(device_));
    return codec_->bring(bytes, static_cast<DeviceAddress>(to.data_ptr()));
  };
  Saved saved{.microbatch = input.id.microbatch, .loss_scale = input.loss_scale};
  if (stage_.has_embedding()) {
    SWARMLINE_TRY(take(input.tokens, saved.tokens));
  } else {
    auto hidden = take_hidden(input.hidden, input.hidden_wire, {tokens, spec_.hidden_width()});
    if (!hidden) return std::unexpected(std::move(hidden).error());
    saved.input = device_.is_cpu() ? hidden->clone() : std::move(*hidden);
  }
  if (stage_.has_head()) SWARMLINE_TRY(take(input.targets, saved.targets));
  if (spec_.mask_documents) saved.documents = documents_of(input);
  return saved;
}

void TorchStageModel::compute(Saved& saved, bool train) {
  if (stage_.has_embedding()) saved.input = network().embed(saved.tokens);
  if (at::GradMode::is_enabled()) saved.input = saved.input.detach().requires_grad_(true);
  const bool drop = train && spec_.shape.dropout > 0;
  const DocumentMasks masks = network().masks_of(saved.documents);
  const at::Tensor hidden = network().blocks(
      // A view, so that a stage without layers has a graph, too.
      saved.input.view_as(saved.input),
      drop ? std::optional(dropout_key(spec_.seed, saved.microbatch)) : std::nullopt,
      saved.documents.empty() ? nullptr : &masks);
  saved.output = stage_.has_head() ? network().loss(hidden, saved.targets) : hidden;
}

BegunPass<ForwardOutput> TorchStageModel::run_forward(const ForwardInput& input) {
  auto taken = take_in(input);
  if (!taken) return std::unexpected(std::move(taken).error());
  Saved saved = std::move(*taken);
  {
    at::AutoGradMode graph(input.train && !recompute_);
    compute(saved, input.train);
  }
  at::NoGradGuard no_graph;
  auto pass = give_forward(input, saved.output);
  if (pass && input.train) {
    if (recompute_) {
      saved.output.reset();
      if (stage_.has_embedding()) saved.input.reset();
    }
    saved_.emplace(input.id, std::move(saved));
  }
  return pass;
}

Result<at::Tensor> TorchStageModel::output_gradient(const BackwardInput& input,
                                                    const Saved& saved) const {
  if (stage_.has_head()) return at::full({}, saved.loss_scale, saved.output.options());
  return take_hidden(input.output_gradient, input.output_gradient_wire, saved.output.sizes());
}

at::Tensor TorchStageModel::sums_of(MutableBytes accumulator) {
  SWARMLINE_CHECK_MSG(accumulator.size() == layout_.bytes(), "an accumulator of another layout");
  const auto elements = static_cast<std::int64_t>(layout_.elements);
  if (device_.is_cpu()) return borrowed(accumulator, {elements}, type_);
  at::Tensor& sums = device_sums_[accumulator.data()];
  if (!sums.defined()) sums = at::zeros({elements}, at::TensorOptions(type_).device(device_));
  SWARMLINE_CHECK(device_sums_.size() <= kAccumulatorsMax);
  return sums;
}

Result<void> TorchStageModel::take_memory(std::span<const MutableBytes> accumulators, bool other) {
  return guarded<void>("making room for the stage", [&]() -> Result<void> {
    for (const MutableBytes accumulator : accumulators) sums_of(accumulator);
    if (other) other_parameters();
    return {};
  });
}

Result<void> TorchStageModel::collect_sums(MutableBytes accumulator) {
  if (device_.is_cpu()) return {};
  return guarded<void>("collecting gradients", [&]() -> Result<void> {
    const at::Tensor sums = sums_of(accumulator);
    borrowed(accumulator, sums.sizes(), type_).copy_(sums);
    return {};
  });
}

BegunPass<BackwardOutput> TorchStageModel::run_backward(const BackwardInput& input, Saved& saved) {
  Saved graph = saved;
  const bool again = !graph.output.defined();
  if (again) {
    at::AutoGradMode on(true);
    compute(graph, /*train=*/true);
  }
  at::NoGradGuard no_graph;
  auto given = output_gradient(input, graph);
  if (!given) return std::unexpected(std::move(given).error());
  GradientSink& sink = network().sink();
  const bool add_now = input.weight_gradients && !input.add_later;
  const at::Tensor sums = add_now ? sums_of(input.accumulator) : at::Tensor{};
  if (sums.defined()) sink.open(sums, input.scale);
  GradientSink::Kept kept;
  if (input.weight_gradients && input.add_later) {
    sink.keep(kept);
    if (device_.is_cpu()) given = given->clone();  // it is borrowed for this call
  }
  const at::Tensor gradient = torch::autograd::grad({graph.output}, {graph.input}, {*given},
                                                    /*retain_graph=*/input.keep_graph && !again)[0];
  if (stage_.has_embedding()) network().embed_backward(graph.tokens, gradient);
  auto pass = give_backward(input, gradient);
  if (pass && input.weight_gradients && input.add_later)
    later_[input.id] = {std::move(kept), input.scale};
  return pass;
}

BegunPass<ForwardOutput> TorchStageModel::begin_forward(const ForwardInput& input) {
  SWARMLINE_CHECK_MSG(!saved_.contains(input.id), "the attempt already has a saved graph");
  const auto once = [&] {
    return guarded<std::unique_ptr<Begun<ForwardOutput>>>("forward",
                                                          [&] { return run_forward(input); });
  };
  auto result = once();
  if (is_full(result)) {
    release_cached_memory(device_);
    result = once();
  }
  if (!result) result.error() = judged(std::move(result).error());
  return result;
}

BegunPass<BackwardOutput> TorchStageModel::try_backward(const BackwardInput& input, Saved& saved) {
  auto result = guarded<std::unique_ptr<Begun<BackwardOutput>>>(
      "backward", [&] { return run_backward(input, saved); });
  if (!result && network().sink().has_added() && result.error().code == ErrorCode::kOutOfMemory)
    result.error().code = ErrorCode::kDevice;
  network().sink().close();
  return result;
}

BegunPass<BackwardOutput> TorchStageModel::begin_backward(const BackwardInput& input) {
  const auto found = saved_.find(input.id);
  if (found == saved_.end())
    return fail(ErrorCode::kNotFound, "backward: the attempt has no saved graph");
  SWARMLINE_CHECK(!input.add_later || (!input.keep_graph && !stage_.has_embedding()));
  // Stage 0 has no input gradient, so that without weight gradients there is nothing to do.
  const bool idle = stage_.has_embedding() && !input.weight_gradients;
  auto result = idle ? ended<BackwardOutput>(BackwardOutput()) : try_backward(input, found->second);
  if (is_full(result)) {
    // A part of the graph is gone; the rest makes room.
    found->second.output.reset();
    if (stage_.has_embedding()) found->second.input.reset();
    release_cached_memory(device_);
    result = try_backward(input, found->second);
  }
  // A gradient that came damaged is sent again: nothing was computed with the graph.
  const bool may_come_again =
      !result && (result.error().code == ErrorCode::kCorrupt || is_full(result));
  if (!input.keep_graph && !may_come_again) saved_.erase(found);
  if (!result) result.error() = judged(std::move(result).error());
  return result;
}

// Some of it may be in the sums, whatever failed.
Result<void> TorchStageModel::add_weight_gradients(AttemptId id, MutableBytes accumulator) {
  const auto later = later_.extract(id);
  if (later.empty())
    return fail(ErrorCode::kNotFound, "the attempt has no weight gradients to be added");
  auto result = guarded<void>("weight gradients", [&]() -> Result<void> {
    at::NoGradGuard no_graph;
    network().sink().open(sums_of(accumulator), later.mapped().scale);
    for (const auto& add : later.mapped().gradients) add(network().sink());
    return {};
  });
  network().sink().close();
  if (is_full(result)) result.error().code = ErrorCode::kDevice;
  if (!result) return std::unexpected(judged(std::move(result).error()));
  return {};
}

// They are queued; whoever goes by the time that a job takes has to know when they are there.
BegunPass<AddedGradients> TorchStageModel::begin_weight_gradients(AttemptId id,
                                                                  MutableBytes accumulator) {
  SWARMLINE_TRY(add_weight_gradients(id, accumulator));
  if (codec_ == nullptr) return ended(Result<AddedGradients>());
  auto end = codec_->begin_number(nullptr);
  if (!end) return std::unexpected(judged(std::move(end).error()));
  const auto take = [](AddedGradients&, const Buffer&, double) {};
  return std::make_unique<DevicePass<AddedGradients, decltype(take)>>(AddedGradients(),
                                                                      std::move(*end), take);
}

}  // namespace

void set_compute_threads(int threads) {
  SWARMLINE_CHECK(threads >= 1);
  at::set_num_threads(threads);
}

Result<std::unique_ptr<StageModel>> make_stage_model(const ModelSpec& spec, const StageSpec& stage,
                                                     const StageModelOptions& options) {
  const Result<at::Device> device = find_device(options.device);
  if (!device) return std::unexpected(device.error());
  keep_tensors_in_blocks();
  set_compute_threads(options.threads);
  std::shared_ptr<DeviceCodec> codec;
  if (device->is_cuda() && spec.shape.dtype == DType::kF32) {
    share_cached_memory(*device);
    auto made = make_device_codec(device->index());
    if (!made) return std::unexpected(std::move(made).error());
    codec = std::move(*made);
  }
  return guarded<std::unique_ptr<StageModel>>("loading the model", [&] {
    return std::make_unique<TorchStageModel>(spec, stage, options, *device, std::move(codec));
  });
}

}  // namespace swarmline
