// A model that takes and gives wire buffers, as a device's does, with the host's codecs around one
// that does not. It insists on what such a model may: no tensor comes or is asked for as values.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/model_wrapper.h"

namespace swarmline {

// The host's sample with the clock that a device has.
class TimedSample final : public TensorSample {
 public:
  TimedSample(TensorSamplePtr inner, Duration time) : inner_(std::move(inner)), time_(time) {}
  std::uint64_t elements() const override { return inner_->elements(); }
  Result<CodecMeasurement> measure(const CodecSpec& codec,
                                   const kernels::StochasticKey* key) const override {
    auto measured = inner_->measure(codec, key);
    if (measured) measured->time = time_;
    return measured;
  }

 private:
  TensorSamplePtr inner_;
  Duration time_;
};

class WireModel final : public ModelWrapper {
 public:
  // `codec_time`: what its samples say that a codec takes; none: they have no clock. `hidden`: of
  // the inner model's hidden states; none: the layout's.
  explicit WireModel(std::unique_ptr<StageModel> inner, std::optional<Duration> codec_time = {},
                     std::optional<DType> hidden = {})
      : ModelWrapper(std::move(inner)),
        codec_time_(codec_time),
        hidden_(hidden.value_or(layout().dtype)) {}
  bool takes_wire() const override { return true; }

  Result<ForwardOutput> forward(const ForwardInput& input) override {
    SWARMLINE_CHECK(input.hidden.empty());
    ForwardInput inner = input;
    inner.hidden_wire = {};
    inner.as_wire.reset();
    auto hidden = values_of(input.hidden_wire);
    if (!hidden) return std::unexpected(hidden.error());
    inner.hidden = hidden->bytes();
    auto output = ModelWrapper::forward(inner);
    if (output) give(input.give_hidden, input.as_wire, output->hidden, output->sample);
    return output;
  }
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    SWARMLINE_CHECK(input.output_gradient.empty());
    BackwardInput inner = input;
    inner.output_gradient_wire = {};
    inner.as_wire.reset();
    auto gradient = values_of(input.output_gradient_wire);
    if (!gradient) return std::unexpected(gradient.error());
    inner.output_gradient = gradient->bytes();
    auto output = ModelWrapper::backward(inner);
    if (output)
      give(input.give_input_gradient, input.as_wire, output->input_gradient, output->sample);
    return output;
  }

 private:
  Result<Buffer> values_of(BytesView wire) const {
    if (wire.empty()) return Buffer();
    auto header = read_wire_header(wire);
    if (!header) return std::unexpected(header.error());
    Buffer values(header->elements * size_bytes(hidden_));
    SWARMLINE_TRY(decode(wire, hidden_, values.bytes()));
    return values;
  }
  void give(bool wanted, const std::optional<WireRequest>& as_wire, Buffer& tensor,
            TensorSamplePtr& sample) const {
    if (tensor.empty()) return;
    const Buffer values = std::exchange(tensor, Buffer());
    if (!wanted) return;
    SWARMLINE_CHECK(as_wire.has_value());
    tensor =
        encode(as_wire->codec, values.bytes(), hidden_, as_wire->key ? &*as_wire->key : nullptr);
    sample = host_sample(values.bytes(), hidden_, as_wire->sample_elements);
    if (sample && codec_time_)
      sample = std::make_shared<TimedSample>(std::move(sample), *codec_time_);
  }

  const std::optional<Duration> codec_time_;
  const DType hidden_;
};

inline Result<std::unique_ptr<StageModel>> make_fake_wire_model(const ModelSpec& spec,
                                                                const StageSpec& stage,
                                                                const StageModelOptions&) {
  return std::make_unique<WireModel>(std::make_unique<FakeStageModel>(spec, stage));
}

}  // namespace swarmline
