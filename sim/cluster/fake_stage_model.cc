#include "sim/cluster/fake_stage_model.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace swarmline {
namespace {

constexpr double kQuantum = 0x1p-44;

double exact(double gradient) {
  return std::nearbyint(gradient / kQuantum) * kQuantum;
}

}  // namespace

FakeStageModel::FakeStageModel(const ModelSpec& spec, const StageSpec& stage)
    : spec_(spec), stage_(stage), layout_(make_layout(spec, stage)), arenas_(layout_.bytes()) {
  SWARMLINE_CHECK(layout_.dtype == DType::kF64);
  for (const ParameterSlot& slot : layout_.slots)
    for (std::uint64_t i = 0; i < slot.elements; ++i) elements_.push_back(slot.offset + i);
  initialise_parameters(spec, layout_, arenas_.in_use().data());
}

Result<ForwardOutput> FakeStageModel::forward(const ForwardInput& input) {
  SWARMLINE_CHECK_MSG(!saved_.contains(input.id), "the attempt already has a saved graph");
  Saved saved;
  saved.x = take_in(input);
  std::vector<double> y(saved.x.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = saved.x[i] * factor(i);
  ForwardOutput output;
  if (stage_.has_head()) {
    saved.gradient.resize(y.size());
    output.loss_sum = loss(input, y, saved.gradient);
  } else {
    output.hidden = Buffer(y.size() * sizeof(double));
    std::memcpy(output.hidden.data(), y.data(), output.hidden.size());
  }
  for (double value : y) output.finite = output.finite && std::isfinite(value);
  if (input.train) saved_.emplace(input.id, std::move(saved));
  return output;
}

Result<BackwardOutput> FakeStageModel::backward(const BackwardInput& input) {
  const auto found = saved_.find(input.id);
  if (found == saved_.end() || found->second.later)
    return fail(ErrorCode::kNotFound, "the attempt has no saved graph");
  Saved& saved = found->second;
  if (!stage_.has_head()) {
    SWARMLINE_CHECK(input.output_gradient.size() == saved.x.size() * sizeof(double));
    saved.gradient.resize(saved.x.size());
    std::memcpy(saved.gradient.data(), input.output_gradient.data(), input.output_gradient.size());
  }
  BackwardOutput output;
  if (!stage_.has_embedding()) output.input_gradient = Buffer(saved.x.size() * sizeof(double));
  if (!stage_.has_embedding())
    for (std::size_t i = 0; i < saved.x.size(); ++i)
      output.input_gradient.as<double>()[i] = saved.gradient[i] * factor(i);
  if (input.weight_gradients && input.add_later) saved.later = input.scale;
  if (input.weight_gradients && !input.add_later) add(saved, input.scale, input.accumulator);
  if (!input.keep_graph && !saved.later) saved_.erase(found);
  return output;
}

Result<void> FakeStageModel::add_weight_gradients(AttemptId id, MutableBytes accumulator) {
  const auto found = saved_.find(id);
  if (found == saved_.end() || !found->second.later)
    return fail(ErrorCode::kNotFound, "the attempt has no weight gradients to be added");
  add(found->second, *found->second.later, accumulator);
  saved_.erase(found);
  return {};
}

void FakeStageModel::add(const Saved& saved, double scale, MutableBytes accumulator) const {
  auto* sums = reinterpret_cast<double*>(accumulator.data());
  for (std::size_t i = 0; i < saved.x.size(); ++i)
    sums[element(i)] += scale * exact(saved.gradient[i] * saved.x[i]);
}

double FakeStageModel::factor(std::size_t i) const {
  const auto* weights = reinterpret_cast<const double*>(arenas_.in_use().data());
  return 0.5 + weights[element(i)];
}

std::vector<double> FakeStageModel::take_in(const ForwardInput& input) const {
  const std::size_t tokens = std::size_t{input.rows} * spec_.sequence;
  std::vector<double> x(tokens * spec_.shape.d_model);
  if (!stage_.has_embedding()) {
    SWARMLINE_CHECK(input.hidden.size() == x.size() * sizeof(double));
    std::memcpy(x.data(), input.hidden.data(), input.hidden.size());
    return x;
  }
  SWARMLINE_CHECK(input.tokens.size() == tokens * sizeof(std::int32_t));
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::int32_t token = 0;
    std::memcpy(&token, input.tokens.data() + i / spec_.shape.d_model * sizeof(token),
                sizeof(token));
    x[i] = 1 + 0.1 * ((token * 7 + static_cast<int>(i % spec_.shape.d_model) * 3) % 11);
  }
  return x;
}

double FakeStageModel::loss(const ForwardInput& input, const std::vector<double>& y,
                            std::vector<double>& gradient) const {
  const std::size_t width = spec_.shape.d_model;
  double sum = 0;
  for (std::size_t token = 0; token < y.size() / width; ++token) {
    std::int32_t target = 0;
    std::memcpy(&target, input.targets.data() + token * sizeof(target), sizeof(target));
    double mean = 0;
    for (std::size_t j = 0; j < width; ++j)
      mean += y[token * width + j] / static_cast<double>(width);
    const double off = mean - static_cast<double>(target) / spec_.shape.vocab;
    sum += 2 * off * off;
    for (std::size_t j = 0; j < width; ++j)
      gradient[token * width + j] = input.loss_scale * 4 * off / static_cast<double>(width);
  }
  return sum;
}

Result<std::unique_ptr<StageModel>> make_fake_model(const ModelSpec& spec, const StageSpec& stage,
                                                    const StageModelOptions&) {
  return std::make_unique<FakeStageModel>(spec, stage);
}

}  // namespace swarmline
