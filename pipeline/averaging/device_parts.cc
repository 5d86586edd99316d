#include "pipeline/averaging/device_parts.h"

#include <deque>
#include <utility>

namespace swarmline {
namespace {

struct ByteRange {
  std::uint64_t first = 0;
  std::uint64_t size = 0;
};

ByteRange own_slice(const ButterflySpec& spec) {
  const std::uint64_t width = size_bytes(spec.dtype);
  const std::uint64_t first = spec.bounds[spec.rank];
  return {first * width, (spec.bounds[spec.rank + 1] - first) * width};
}

Result<void> fetch_own(const DeviceSide& device, const ByteRange& own, DeviceAddress from,
                       MutableBytes to) {
  if (to.empty() || own.size == 0) return {};
  return device.memory.fetch(to.subspan(own.first, own.size), from + own.first);
}

struct Leaving {
  std::uint32_t number = 0;
  std::unique_ptr<LeavingWire> wire;
};

Result<void> arrive(Leaving leaving, std::vector<SharedBytes>& parts) {
  auto wire = leaving.wire->wait();
  if (!wire) return std::unexpected(std::move(wire).error());
  parts[leaving.number] = SharedBytes(std::move(*wire));
  return {};
}

}  // namespace

Result<std::vector<SharedBytes>> take_parts(const DeviceSide& device, const ButterflySpec& spec,
                                            DeviceAddress values,
                                            const DeviceGradients::Feedback& feedback,
                                            const OwnSlice& own) {
  SWARMLINE_TRY(fetch_own(device, own_slice(spec), values, own.values));
  SWARMLINE_TRY(fetch_own(device, own_slice(spec), feedback.current, own.residual));
  const SliceChunks chunks = chunks_of(spec);
  std::vector<SharedBytes> parts(chunks.total());
  std::deque<Leaving> leaving;
  SliceChunks::Place at;
  for (bool more = chunks.from(at); more; more = chunks.after(at)) {
    if (at.slice == spec.rank) continue;
    if (leaving.size() == kLeavingParts) {
      SWARMLINE_TRY(arrive(std::move(leaving.front()), parts));
      leaving.pop_front();
    }
    const std::uint64_t byte = chunks.first(at) * size_bytes(spec.dtype);
    DeviceGradients::Feedback lost;
    if (feedback.current != nullptr)
      lost = {.current = feedback.current + byte, .next = feedback.next + byte};
    const auto key = draws_of(spec, ReducePart::kScatter, at);
    auto wire = device.gradients.begin_encode(spec.scatter[at.slice], values + byte,
                                              chunks.elements(at), lost, key ? &*key : nullptr);
    if (!wire) return std::unexpected(std::move(wire).error());
    leaving.push_back({chunks.number(at), std::move(*wire)});
  }
  for (Leaving& last : leaving) SWARMLINE_TRY(arrive(std::move(last), parts));
  return parts;
}

Result<void> bring_sums(const DeviceSide& device, const ButterflySpec& spec,
                        const std::vector<SharedBytes>& sums, DeviceAddress out) {
  const SliceChunks chunks = chunks_of(spec);
  for (std::uint32_t number = 0; number < chunks.total(); ++number) {
    const SliceChunks::Place at = chunks.place(number);
    SWARMLINE_TRY(device.gradients.decode(
        sums[number].view(), out + chunks.first(at) * size_bytes(spec.dtype), chunks.elements(at)));
  }
  return {};
}

Result<void> bring_own_residual(const DeviceSide& device, const ButterflySpec& spec,
                                BytesView residual, DeviceAddress next) {
  const ByteRange own = own_slice(spec);
  if (own.size == 0) return {};
  return device.memory.bring(next + own.first, residual.subspan(own.first, own.size));
}

}  // namespace swarmline
