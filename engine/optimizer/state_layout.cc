#include "engine/optimizer/state_layout.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "engine/optimizer/muon.h"
#include "kernels/optimizer.h"

namespace swarmline {
namespace {

constexpr std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}
constexpr std::uint64_t scales_of(std::uint64_t elements) {
  return (elements + kernels::kMomentBlock - 1) / kernels::kMomentBlock;
}

bool is_coded(const ParameterSlot& slot) {
  return slot.elements >= kCodedElementsMin && !slot.name.starts_with("embed.");
}

// Behind what a moment's state has so far.
MomentPlace append(const ParameterSlot& slot, bool coded, std::uint64_t width,
                   std::uint64_t& bytes) {
  MomentPlace place{.values_at = bytes};
  bytes += round_up(slot.elements * (coded ? 1 : width));
  if (!coded) return place;
  place.scales_at = bytes;
  bytes += round_up(scales_of(slot.elements) * sizeof(float));
  return place;
}

void add_chunks(const ParameterSlot& slot, const SlotState& state, WorkList& list) {
  constexpr std::uint64_t kChunk = kernels::kOptimizerChunk;
  const auto tensor = static_cast<std::uint32_t>(list.tensors.size());
  const std::uint64_t chunks = (slot.elements + kChunk - 1) / kChunk;
  SWARMLINE_CHECK(chunks <= kernels::kOptimizerTensorChunksMax);
  list.tensors.push_back({.first_chunk = static_cast<std::uint32_t>(list.chunks.size()),
                          .chunks = static_cast<std::uint32_t>(chunks)});
  for (std::uint64_t begin = 0; begin < slot.elements; begin += kChunk) {
    const std::uint64_t value_bytes = state.coded ? 1 : sizeof(float);
    list.chunks.push_back(
        {.element = slot.offset + begin,
         .values_at = state.first.values_at + begin * value_bytes,
         .scales_at = state.first.scales_at + scales_of(begin) * sizeof(float),
         .tensor = tensor,
         .count = static_cast<std::uint16_t>(std::min(kChunk, slot.elements - begin)),
         .decay = std::uint16_t{slot.decay}});
  }
}

}  // namespace

StateLayout make_state_layout(const OptimizerSection& options, const ParameterLayout& layout) {
  StateLayout state;
  const bool is_8bit = options.state == MomentsKind::k8Bit;
  const bool has_holes = options.kind == OptimizerKind::kMuon;
  SWARMLINE_CHECK(!is_8bit || layout.dtype == DType::kF32);
  for (const ParameterSlot& slot : layout.slots) {
    const std::uint64_t width = size_bytes(layout.dtype);
    const MomentPlace in_arena{.values_at = slot.offset * width};
    SlotState made{.coded = is_8bit && is_coded(slot),
                   .has_second = !is_muon_matrix(options, slot)};
    made.first = is_8bit ? append(slot, made.coded, width, state.first_bytes) : in_arena;
    if (made.has_second) {
      made.second =
          is_8bit || has_holes ? append(slot, made.coded, width, state.second_bytes) : in_arena;
    }
    state.slots.push_back(made);
  }
  if (!is_8bit) state.first_bytes = layout.bytes();
  if (!is_8bit && !has_holes) state.second_bytes = layout.bytes();
  return state;
}

WorkList make_work_list(const ParameterLayout& layout, const StateLayout& state) {
  SWARMLINE_CHECK(layout.dtype == DType::kF32);
  SWARMLINE_CHECK(std::ranges::all_of(state.slots, &SlotState::has_second));
  WorkList list;
  for (const bool coded : {false, true}) {
    for (std::size_t i = 0; i < layout.slots.size(); ++i) {
      if (state.slots[i].coded == coded) add_chunks(layout.slots[i], state.slots[i], list);
    }
    if (!coded) list.chunks_fp32 = static_cast<std::uint32_t>(list.chunks.size());
  }
  return list;
}

}  // namespace swarmline
