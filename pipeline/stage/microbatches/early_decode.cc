#include "pipeline/stage/microbatches/early_decode.h"

#include "base/marks.h"

namespace swarmline {

void EarlyDecode::on_arriving(PeerId from, const AttemptId& id, const Arrival& arrival) {
  const Key key{from, arrival.kind};
  auto found = decoding_.find(key);
  if (found == decoding_.end() ||
      !found->second->is_of(id, arrival.arrived.data(), arrival.payload_bytes)) {
    if (found == decoding_.end() && decoding_.size() >= kTensorsMax) return;
    // The header before the memory: what it says must be what is expected.
    if (arrival.arrived.size() < kWireHeaderBytes) return;
    const auto header = read_wire_header(arrival.arrived, arrival.payload_bytes);
    if (!header || header->elements != elements_) return;
    auto begun =
        std::make_unique<Decoding>(id, BytesView(arrival.arrived.data(), arrival.payload_bytes),
                                   dtype_, elements_ * size_bytes(dtype_));
    found = decoding_.insert_or_assign(key, std::move(begun)).first;
  }
  Decoding& decoding = *found->second;
  if (!decoding.failed && !decoding.decoder.advance(arrival.arrived)) decoding.failed = true;
}

SharedBytes EarlyDecode::take(PeerId from, const AttemptId& id, const Frame& frame) {
  auto node = decoding_.extract(Key{from, frame.kind});
  if (node.empty()) return {};
  Decoding& decoding = *node.mapped();
  const BytesView payload = frame.received_payload();
  if (!decoding.is_of(id, payload.data(), payload.size())) {
    SWARMLINE_MARK("early_decode.another_frame");
    return {};
  }
  if (decoding.failed || !decoding.decoder.advance(payload)) return {};
  ++taken_;
  return SharedBytes(std::move(decoding.out));
}

void EarlyDecode::drop(PeerId from) {
  std::erase_if(decoding_, [&](const auto& entry) { return entry.first.first == from; });
}

}  // namespace swarmline
