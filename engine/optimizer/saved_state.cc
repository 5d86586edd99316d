#include "engine/optimizer/saved_state.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/model/device_optimizer.h"
#include "engine/optimizer/state_layout.h"
#include "kernels/optimizer.h"

namespace swarmline {
namespace {

bool is_tied(const ParameterLayout& layout, const ParameterSlot& slot) {
  return slot.offset >= layout.tied_offset;
}

void add_parameters(const ParameterLayout& layout, std::string_view prefix, SavedState& saved) {
  const std::uint64_t width = size_bytes(layout.dtype);
  for (const ParameterSlot& slot : layout.slots)
    saved.tensors.push_back({.name = fmt::format("{}{}", prefix, slot.name),
                             .dtype = layout.dtype,
                             .shape = slot.shape,
                             .at = saved.bytes + slot.offset * width,
                             .bytes = slot.elements * width,
                             .tied = is_tied(layout, slot)});
  saved.bytes += layout.bytes();
}

void add_moment(const ParameterLayout& layout, const StateLayout& state, Moment moment,
                SavedState& saved) {
  const bool first = moment == Moment::kFirst;
  for (std::size_t i = 0; i < layout.slots.size(); ++i) {
    const ParameterSlot& slot = layout.slots[i];
    const SlotState& kept = state.slots[i];
    if (!first && !kept.has_second) continue;
    const MomentPlace& at = first ? kept.first : kept.second;
    const DType dtype = kept.coded ? DType::kU8 : layout.dtype;
    SavedTensor tensor{
        .name = fmt::format("{}{}.{}", kOptimizerPrefix, first ? 'm' : 'v', slot.name),
        .dtype = dtype,
        .shape = slot.shape,
        .at = saved.bytes + at.values_at,
        .bytes = slot.elements * size_bytes(dtype),
        .tied = is_tied(layout, slot)};
    saved.tensors.push_back(tensor);
    if (!kept.coded) continue;
    const std::uint64_t scales =
        (slot.elements + kernels::kMomentBlock - 1) / kernels::kMomentBlock;
    tensor.name += ".scales";
    tensor.dtype = DType::kF32;
    tensor.shape = {static_cast<std::int64_t>(scales)};
    tensor.at = saved.bytes + at.scales_at;
    tensor.bytes = scales * sizeof(float);
    saved.tensors.push_back(std::move(tensor));
  }
  saved.bytes += first ? state.first_bytes : state.second_bytes;
}

Result<BytesView> bytes_of(const SavedTensor& tensor, const FindTensor& find) {
  auto bytes = find(tensor.name);
  if (bytes && bytes->size() != tensor.bytes)
    return fail(ErrorCode::kIncompatible,
                fmt::format("tensor \"{}\" has {} bytes, and the model needs {}", tensor.name,
                            bytes->size(), tensor.bytes));
  return bytes;
}

}  // namespace

SavedState saved_state(const RunConfig& config, const ParameterLayout& layout,
                       bool with_optimizer) {
  SavedState saved;
  add_parameters(layout, "", saved);
  if (!with_optimizer) return saved;
  const StateLayout state = make_state_layout(config.optimizer, layout);
  for (const Moment moment : {Moment::kFirst, Moment::kSecond})
    add_moment(layout, state, moment, saved);
  if (config.pipeline.delay == 1) add_parameters(layout, kPreviousPrefix, saved);
  return saved;
}

SavedPart part_of(const SavedState& saved, std::uint32_t part, std::uint32_t parts) {
  const auto is_before = [&](const SavedTensor& tensor, std::uint32_t other) {
    const std::uint64_t middle = tensor.at + tensor.bytes / 2;
    return std::min<std::uint64_t>(middle * parts / saved.bytes, parts - 1) < other;
  };
  const auto& all = saved.tensors;
  const auto begin = std::lower_bound(all.begin(), all.end(), part, is_before);
  const auto end = std::lower_bound(begin, all.end(), part + 1, is_before);
  if (begin == end) return {};
  const SavedTensor& last = *(end - 1);
  return {.tensors = {begin, end}, .first = begin->at, .bytes = last.at + last.bytes - begin->at};
}

Result<void> check_saved(const SavedState& saved, const FindTensor& find) {
  for (const SavedTensor& tensor : saved.tensors)
    if (auto bytes = bytes_of(tensor, find); !bytes) return std::unexpected(bytes.error());
  return {};
}

Result<void> read_saved(const SavedState& saved, const FindTensor& find, std::uint64_t first,
                        MutableBytes out) {
  SWARMLINE_CHECK(first <= saved.bytes && out.size() <= saved.bytes - first);
  if (!out.empty()) std::memset(out.data(), 0, out.size());
  const std::uint64_t end = first + out.size();
  auto tensor = std::ranges::upper_bound(saved.tensors, first, {}, &SavedTensor::at);
  if (tensor != saved.tensors.begin()) --tensor;
  for (; tensor != saved.tensors.end() && tensor->at < end; ++tensor) {
    auto bytes = bytes_of(*tensor, find);
    if (!bytes) return std::unexpected(std::move(bytes).error());
    const std::uint64_t from = std::max(first, tensor->at);
    const std::uint64_t to = std::min(end, tensor->at + tensor->bytes);
    if (from < to)
      std::memcpy(out.data() + (from - first), bytes->data() + (from - tensor->at), to - from);
  }
  return {};
}

}  // namespace swarmline
