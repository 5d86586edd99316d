// A CheckpointDiff for people and for programs.

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/checkpoint/checkpoint_diff.h"
#include "engine/store/json_writer.h"

namespace swarmline {

namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

std::string dtype_text(const TensorDiff& tensor) {
  if (tensor.dtype_a == tensor.dtype_b) return std::string(safetensors_name(tensor.dtype_a));
  return fmt::format("{}/{}", safetensors_name(tensor.dtype_a), safetensors_name(tensor.dtype_b));
}

const TensorDiff* worst(const CheckpointDiff& diff, double TensorDiff::* measure) {
  const auto found = std::ranges::max_element(diff.tensors, {}, measure);
  return found == diff.tensors.end() ? nullptr : &*found;
}

std::string summary_text(const CheckpointDiff& diff) {
  const auto equal = std::ranges::count_if(diff.tensors, &TensorDiff::equal_bits);
  std::string text =
      fmt::format("{} tensors compared, {} with the same bits", diff.tensors.size(), equal);
  text += fmt::format("; {} only in A, {} only in B, {} of different shape\n",
                      diff.only_in_a.size(), diff.only_in_b.size(), diff.mismatches.size());
  if (diff.state_in_a || diff.state_in_b)
    text += fmt::format("the optimizer's state, in {}, is not compared\n",
                        diff.state_in_a && diff.state_in_b ? "both"
                        : diff.state_in_a                  ? "A"
                                                           : "B");
  const TensorDiff* absolute = worst(diff, &TensorDiff::max_abs);
  const TensorDiff* peak = worst(diff, &TensorDiff::max_rel_to_peak);
  const TensorDiff* relative = worst(diff, &TensorDiff::max_rel);
  if (absolute == nullptr || diff.equal_bits()) return text;
  text +=
      fmt::format("largest absolute difference {:.3e} in {}\n", absolute->max_abs, absolute->name);
  text += fmt::format(
      "largest relative difference {:.3e} of the tensor's peak in {}, {:.3e} of an "
      "element in {}\n",
      peak->max_rel_to_peak, peak->name, relative->max_rel, relative->name);
  return text;
}

void write_shape(JsonWriter& json, std::string_view key, const std::vector<std::int64_t>& shape) {
  json.key(key).begin_array();
  for (const std::int64_t extent : shape) json.value(extent);
  json.end_array();
}

void write_names(JsonWriter& json, std::string_view key, const std::vector<std::string>& names) {
  json.key(key).begin_array();
  for (const std::string& name : names) json.value(name);
  json.end_array();
}

// JSON has no infinity: null says "not a finite number".
void write_tensor(JsonWriter& json, const TensorDiff& tensor) {
  json.begin_object().member("name", tensor.name);
  write_shape(json, "shape", tensor.shape);
  json.member("dtype_a", safetensors_name(tensor.dtype_a));
  json.member("dtype_b", safetensors_name(tensor.dtype_b));
  json.member("equal_bits", tensor.equal_bits);
  json.member("elements_different", tensor.elements_different);
  json.member("max_abs", tensor.max_abs).member("max_rel_to_peak", tensor.max_rel_to_peak);
  json.member("max_rel", tensor.max_rel).end_object();
}

}  // namespace

std::string to_text(const CheckpointDiff& diff) {
  std::size_t name_width = 6;
  std::size_t shape_width = 5;
  for (const TensorDiff& tensor : diff.tensors) {
    name_width = std::max(name_width, tensor.name.size());
    shape_width = std::max(shape_width, shape_text(tensor.shape).size());
  }
  std::string text = fmt::format("A: {}\nB: {}\n\n", diff.path_a, diff.path_b);
  text += fmt::format("{:<{}}  {:<{}}  {:<8}  {:>10}  {:>10}  {:>10}\n", "tensor", name_width,
                      "shape", shape_width, "dtype", "max abs", "rel peak", "rel elem");
  for (const TensorDiff& tensor : diff.tensors) {
    text += fmt::format("{:<{}}  {:<{}}  {:<8}  ", tensor.name, name_width,
                        shape_text(tensor.shape), shape_width, dtype_text(tensor));
    if (tensor.equal_bits) {
      text += fmt::format("{:>10}\n", "same bits");
    } else {
      text += fmt::format("{:>10.3e}  {:>10.3e}  {:>10.3e}\n", tensor.max_abs,
                          tensor.max_rel_to_peak, tensor.max_rel);
    }
  }
  for (const ShapeMismatch& mismatch : diff.mismatches) {
    text += fmt::format("{}: shape {} in A, {} in B\n", mismatch.name, shape_text(mismatch.shape_a),
                        shape_text(mismatch.shape_b));
  }
  for (const std::string& name : diff.only_in_a) text += fmt::format("{}: only in A\n", name);
  for (const std::string& name : diff.only_in_b) text += fmt::format("{}: only in B\n", name);
  return text + "\n" + summary_text(diff);
}

std::string to_json(const CheckpointDiff& diff) {
  JsonWriter json(2);
  json.begin_object().member("format", kDiffFormat);
  json.member("a", diff.path_a).member("b", diff.path_b);
  json.member("same_tensors", diff.same_tensors()).member("equal_bits", diff.equal_bits());
  for (const auto& [key, measure] : {std::pair{"max_abs", &TensorDiff::max_abs},
                                     std::pair{"max_rel_to_peak", &TensorDiff::max_rel_to_peak},
                                     std::pair{"max_rel", &TensorDiff::max_rel}}) {
    const TensorDiff* tensor = worst(diff, measure);
    json.member(key, tensor == nullptr ? 0.0 : tensor->*measure);
  }
  json.key("tensors").begin_array();
  for (const TensorDiff& tensor : diff.tensors) write_tensor(json, tensor);
  json.end_array();
  write_names(json, "only_in_a", diff.only_in_a);
  write_names(json, "only_in_b", diff.only_in_b);
  json.key("shape_mismatches").begin_array();
  for (const ShapeMismatch& mismatch : diff.mismatches) {
    json.begin_object().member("name", mismatch.name);
    write_shape(json, "shape_a", mismatch.shape_a);
    write_shape(json, "shape_b", mismatch.shape_b);
    json.end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
