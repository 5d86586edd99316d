// Activations and gradients decoded while the rest of them is on its way: one tensor a neighbour
// and kind at a time, tile by tile as WireDecoder can.
//   Ownership: owns the tensors until they are taken. Thread: control thread.
//   Errors:    bytes that do not decode are dropped here; whoever decodes the whole frame says so.
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
    Decoding(const AttemptId& of, std::uint64_t wire_bytes, DType dtype, std::uint64_t bytes)
        : id(of), out(bytes), decoder(wire_bytes, dtype, out.bytes()) {}
    AttemptId id;
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
