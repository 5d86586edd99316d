#include "engine/collective/slice_chunks.h"

#include <algorithm>
#include <utility>

namespace swarmline {

SliceChunks::SliceChunks(std::vector<std::uint64_t> bounds, std::uint64_t chunk_elements)
    : bounds_(std::move(bounds)), chunk_elements_(chunk_elements), before_{0} {
  for (std::size_t slice = 0; slice + 1 < bounds_.size(); ++slice) {
    const std::uint64_t elements = bounds_[slice + 1] - bounds_[slice];
    const auto chunks =
        static_cast<std::uint32_t>((elements + chunk_elements_ - 1) / chunk_elements_);
    before_.push_back(before_.back() + chunks);
    most_ = std::max(most_, chunks);
  }
}

std::uint64_t SliceChunks::elements(const Place& at) const {
  return std::min(chunk_elements_, bounds_[at.slice + 1] - first(at));
}

SliceChunks::Place SliceChunks::place(std::uint32_t number) const {
  const auto above = std::ranges::upper_bound(before_, number);
  const auto slice = static_cast<std::uint32_t>(above - before_.begin() - 1);
  return {slice, number - before_[slice]};
}

bool SliceChunks::from(Place& at) const {
  while (at.chunk < most_) {
    for (; at.slice < slices(); ++at.slice)
      if (at.chunk < in(at.slice)) return true;
    at = {.slice = 0, .chunk = at.chunk + 1};
  }
  return false;
}

bool SliceChunks::after(Place& at) const {
  ++at.slice;
  return from(at);
}

}  // namespace swarmline
