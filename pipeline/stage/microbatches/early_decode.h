// Activations and gradients decoded while the rest of them is on its way: one tensor a neighbour
// and kind at a time, tile by tile as WireDecoder can.
//   Ownership: owns the tensors until they are taken. Thread: control thread.
//   Errors:    bytes that do not decode are dropped here; whoever decodes the whole frame says so.
//              What comes over another link, or of another size, is another tensor, whatever it is
//              called: what was decoded of the one before is dropped.
//   Bounds:    kTensorsMax tensors, each the size of one activation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/ids.h"
#include "compression/codec.h"
#include "engine/net/frame.h"

namespace swarmline {

class EarlyDecode {
 public:
  static constexpr std::size_t kTensorsMax = 32;

  // `elements` of `dtype` are what a tensor must have.
  EarlyDecode(std::uint64_t elements, DType dtype) : elements_(elements), dtype_(dtype) {}

  // `id`: the attempt that the frame names.
  void on_arriving(PeerId from, const AttemptId& id, const Arrival& arrival);
  // The whole frame is here: its tensor, decoded; empty where nothing was begun, or it does not
  // decode.
  SharedBytes take(PeerId from, const AttemptId& id, const Frame& frame);
  void drop(PeerId from);

  std::uint64_t taken() const { return taken_; }

 private:
  struct Decoding {
    Decoding(const AttemptId& of, BytesView wire, DType dtype, std::uint64_t bytes)
        : id(of), payload(wire), out(bytes), decoder(wire.size(), dtype, out.bytes()) {}
    // Of this frame, and of no other: a frame's payload stays where it is until it is delivered.
    bool is_of(const AttemptId& of, const std::byte* data, std::uint64_t size) const {
      return id == of && payload.data() == data && payload.size() == size;
    }
    AttemptId id;
    BytesView payload;  // where it arrives; looked at as far as it has
    Buffer out;
    WireDecoder decoder;
    bool failed = false;
  };
  using Key = std::pair<PeerId, std::uint16_t>;  // neighbour, kind of frame

  std::uint64_t elements_;
  DType dtype_;
  std::map<Key, std::unique_ptr<Decoding>> decoding_;
  std::uint64_t taken_ = 0;
};

}  // namespace swarmline
