// A model that takes and gives wire buffers, as a device's does, with the host's codecs around one
// that does not. It insists on what such a model may: no tensor comes or is asked for as values.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/base/check.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/oracle/model_wrapper.h"

namespace swarmline {

class WireModel final : public oracle::ModelWrapper {
 public:
  using ModelWrapper::ModelWrapper;
  bool takes_wire() const override { return true; }

  Result<ForwardOutput> forward(const ForwardInput& input) override {
    SWARMLINE_CHECK(input.hidden.empty());
    ForwardInput inner = input;
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
    Buffer values(header->elements * size_bytes(layout().dtype));
    SWARMLINE_TRY(decode(wire, layout().dtype, values.bytes()));
    return values;
  }
  void give(bool wanted, const std::optional<WireRequest>& as_wire, Buffer& tensor,
            Buffer& sample) const {
    if (tensor.empty()) return;
    const Buffer values = std::exchange(tensor, Buffer());
    if (!wanted) return;
    SWARMLINE_CHECK(as_wire.has_value());
    const DType dtype = layout().dtype;
    tensor = encode(as_wire->codec, values.bytes(), dtype, as_wire->key ? &*as_wire->key : nullptr);
    const std::size_t bytes = std::min(values.size(), as_wire->sample_elements * size_bytes(dtype));
    sample = Buffer::copy_of(values.bytes().first(bytes));
  }
};

inline Result<std::unique_ptr<StageModel>> make_fake_wire_model(const ModelSpec& spec,
                                                                const StageSpec& stage,
                                                                const StageModelOptions&) {
  return std::make_unique<WireModel>(std::make_unique<FakeStageModel>(spec, stage));
}

}  // namespace swarmline
