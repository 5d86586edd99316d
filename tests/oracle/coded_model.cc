#include "tests/oracle/coded_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "balancer/cut.h"
#include "base/check.h"
#include "compression/codec.h"
#include "engine/config/configured_codec.h"

namespace swarmline::oracle {
namespace {

struct Part {
  std::unique_ptr<StageModel> model;
  Buffer sums;
};

// A tensor between two parts: its wire buffer, and its values where the model takes no wire.
struct Crossing {
  Buffer wire;
  Buffer values;
};

template <typename T>
void add(std::span<T> to, std::span<const T> from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

class CodedModel final : public StageModel {
 public:
  CodedModel(const ModelSpec& spec, const StageSpec& whole, const CodecSection& codecs,
             std::vector<Part> parts)
      : spec_(spec),
        forward_(configured_codec(codecs.forward, codecs)),
        backward_(configured_codec(codecs.backward, codecs)),
        layout_(make_layout(spec, whole)),
        arena_(Buffer::zeroed(layout_.bytes())),
        parts_(std::move(parts)) {
    for (const ParameterSlot& slot : layout_.slots) slots_[slot.name] = &slot;
    for (Part& part : parts_) {
      each_slot(part, part.model->parameters(), [&](MutableBytes theirs, MutableBytes ours) {
        std::ranges::copy(theirs, ours.begin());
      });
    }
  }

  Result<ForwardOutput> forward(const ForwardInput& input) override;
  Result<BackwardOutput> backward(const BackwardInput& input) override;
  Result<void> add_weight_gradients(AttemptId, MutableBytes) override {
    return fail(ErrorCode::kNotFound, "nothing is added later");
  }
  bool keeps_sums() const override { return true; }
  void clear_sums(MutableBytes accumulator) override;
  Result<void> collect_sums(MutableBytes accumulator) override;
  void release(AttemptId id) override {
    for (Part& part : parts_) part.model->release(id);
  }
  std::size_t saved_graphs() const override { return parts_.front().model->saved_graphs(); }
  const ParameterLayout& layout() const override { return layout_; }
  MutableBytes parameters() override { return arena_.bytes(); }
  MutableBytes other_parameters() override {
    SWARMLINE_CHECK_MSG(false, "one version");
    return {};
  }
  void exchange_parameters() override { SWARMLINE_CHECK_MSG(false, "one version"); }
  void parameters_changed() override;

 private:
  // copy(bytes of the part's arena, those of the whole's) for each of the part's tensors.
  template <typename Copy>
  void each_slot(Part& part, MutableBytes theirs, Copy&& copy) {
    const std::size_t width = size_bytes(layout_.dtype);
    for (const ParameterSlot& slot : part.model->layout().slots) {
      const ParameterSlot& of_whole = *slots_.at(slot.name);
      copy(theirs.subspan(slot.offset * width, slot.elements * width),
           arena_.bytes().subspan(of_whole.offset * width, of_whole.elements * width));
    }
  }
  Result<Crossing> crossed(const Part& next, Buffer given, const CodecSpec& codec,
                           std::uint32_t rows) const;

  const ModelSpec spec_;
  const CodecSpec forward_, backward_;
  const ParameterLayout layout_;
  Buffer arena_;
  std::vector<Part> parts_;
  std::map<std::string, const ParameterSlot*> slots_;
  std::map<AttemptId, std::uint32_t> rows_;
  std::byte* accumulator_ = nullptr;  // the only one, once there is one
};

// `given` by a part: values, or the wire buffer where parts take and make those.
Result<Crossing> CodedModel::crossed(const Part& next, Buffer given, const CodecSpec& codec,
                                     std::uint32_t rows) const {
  Crossing made;
  if (next.model->takes_wire()) {
    made.wire = std::move(given);
    return made;
  }
  const DType dtype = spec_.shape.stream_dtype();
  const Buffer wire = encode(codec, given.bytes(), dtype);
  made.values =
      Buffer(std::size_t{rows} * spec_.sequence * spec_.hidden_width() * size_bytes(dtype));
  SWARMLINE_TRY(decode(wire.bytes(), dtype, made.values.bytes()));
  return made;
}

Result<ForwardOutput> CodedModel::forward(const ForwardInput& input) {
  Crossing hidden;
  bool finite = true;
  for (Part& part : parts_) {
    const bool last = &part == &parts_.back();
    ForwardInput of_part = input;
    of_part.hidden = hidden.values.bytes();
    of_part.hidden_wire = hidden.wire.bytes();
    if (&part != &parts_.front()) of_part.tokens = {};
    if (!last && !spec_.mask_documents) of_part.targets = {};
    if (part.model->takes_wire() && !last)
      of_part.as_wire = WireRequest{.codec = forward_, .key = {}};
    auto output = part.model->forward(of_part);
    if (!output) return output;
    finite &= output->finite;
    output->finite = finite;
    if (last) {
      if (input.train) rows_[input.id] = input.rows;
      return output;
    }
    auto next = crossed(part, std::move(output->hidden), forward_, input.rows);
    if (!next) return std::unexpected(std::move(next).error());
    hidden = std::move(*next);
  }
  return fail(ErrorCode::kIncompatible, "a model without stages");
}

Result<BackwardOutput> CodedModel::backward(const BackwardInput& input) {
  SWARMLINE_CHECK(!input.add_later && input.weight_gradients &&
                  input.accumulator.data() == accumulator_);
  const auto rows = rows_.extract(input.id);
  SWARMLINE_CHECK(!rows.empty());
  Crossing gradient;
  BackwardOutput all;
  for (std::size_t i = parts_.size(); i-- > 0;) {
    Part& part = parts_[i];
    BackwardInput of_part = input;
    of_part.output_gradient = gradient.values.bytes();
    of_part.output_gradient_wire = gradient.wire.bytes();
    of_part.accumulator = part.sums.bytes();
    if (part.model->takes_wire() && i > 0)
      of_part.as_wire = WireRequest{.codec = backward_, .key = {}};
    auto output = part.model->backward(of_part);
    if (!output) return output;
    all.finite &= output->finite;
    if (i == 0) break;
    auto next = crossed(part, std::move(output->input_gradient), backward_, rows.mapped());
    if (!next) return std::unexpected(std::move(next).error());
    gradient = std::move(*next);
  }
  return all;
}

void CodedModel::clear_sums(MutableBytes accumulator) {
  SWARMLINE_CHECK(accumulator_ == nullptr || accumulator_ == accumulator.data());
  accumulator_ = accumulator.data();
  std::ranges::fill(accumulator, std::byte{0});
  for (Part& part : parts_) part.model->clear_sums(part.sums.bytes());
}

Result<void> CodedModel::collect_sums(MutableBytes accumulator) {
  std::ranges::fill(accumulator, std::byte{0});
  const std::size_t width = size_bytes(layout_.dtype);
  for (Part& part : parts_) {
    SWARMLINE_TRY(part.model->collect_sums(part.sums.bytes()));
    for (const ParameterSlot& slot : part.model->layout().slots) {
      std::byte* const to = accumulator.data() + slots_.at(slot.name)->offset * width;
      const std::byte* const from = part.sums.data() + slot.offset * width;
      if (layout_.dtype == DType::kF64) {
        add(std::span(reinterpret_cast<double*>(to), slot.elements),
            std::span(reinterpret_cast<const double*>(from), slot.elements));
      } else {
        add(std::span(reinterpret_cast<float*>(to), slot.elements),
            std::span(reinterpret_cast<const float*>(from), slot.elements));
      }
    }
  }
  return {};
}

void CodedModel::parameters_changed() {
  for (Part& part : parts_) {
    each_slot(part, part.model->parameters(), [](MutableBytes theirs, MutableBytes ours) {
      std::ranges::copy(ours, theirs.begin());
    });
    part.model->parameters_changed();
  }
}

}  // namespace

decltype(ReferenceOptions::make_model) make_coded_model(const RunConfig& config) {
  return [pipeline = config.pipeline, codecs = config.codec](
             const ModelSpec& spec, const StageSpec& whole,
             const StageModelOptions& options) -> Result<std::unique_ptr<StageModel>> {
    const auto cut = cut_layers(model_costs(spec), {.stages = pipeline.stages,
                                                    .share_layers = spec.shape.share_layers,
                                                    .stage_speeds = {},
                                                    .layers = pipeline.layers});
    if (!cut) return std::unexpected(cut.error());
    std::vector<Part> parts;
    for (const StageSpec& stage : *cut) {
      auto model = make_stage_model(spec, stage, options);
      if (!model) return model;
      Buffer sums = Buffer::zeroed((*model)->layout().bytes());
      parts.push_back({.model = std::move(*model), .sums = std::move(sums)});
    }
    return std::make_unique<CodedModel>(spec, whole, codecs, std::move(parts));
  };
}

}  // namespace swarmline::oracle
