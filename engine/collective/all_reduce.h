// One member's side of an all-reduce, whichever way the sums take: what all of them hand out and
// take in. A pure state machine: no I/O, no clock.
//   Ownership: the input is borrowed and never written; the output is borrowed, written until
//              done(). They must not overlap.
//   Thread:    one at a time. The owner sends what send_more() and on_chunk() hand out, in order
//              per receiver, and passes on what arrives. Deadlines are the owner's.
//   Errors:    on_chunk: kCorrupt (does not check, out of range or out of window), kIncompatible
//              (other length, dtype or codec than the round's). After an error the round is where
//              it was before: good bytes may follow.
//   Bounds:    each implementation's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace swarmline {

enum class ReducePart : std::uint8_t { kScatter = 0, kGather = 1 };

struct ChunkSend {
  std::uint32_t to = 0;  // rank
  ReducePart part = ReducePart::kScatter;
  // Within the slice that is reduced (scatter: the receiver's, gather: the sender's); within an
  // island: of all slices, one after another.
  std::uint32_t chunk = 0;
  // A wire buffer, in parts. With codec `none` some are lent by the round's input and output: good
  // until it is over. Gather sends of one chunk share theirs.
  std::vector<SharedBytes> wire;

  std::uint64_t bytes() const;
  SharedBytes whole() const;  // the wire buffer; of several parts a copy
};

class AllReduce {
 public:
  struct Progress {
    std::uint64_t chunks_done = 0;  // finished chunks in the output, of chunks_total
    std::uint64_t chunks_total = 0;
    std::uint64_t chunks_waiting = 0;  // arrived, not yet added
    std::uint64_t bytes_to_send = 0;   // wire bytes handed out so far, but for those of an island
    std::uint64_t bytes_received = 0;  // wire bytes taken so far, duplicates left out
  };

  virtual ~AllReduce() = default;
  // Hands out the next part for each other member whose window is open; call before on_chunk(), and
  // again while it returns true: there is more. on_chunk() may come between.
  virtual bool send_more(const std::function<void(ChunkSend)>& send) = 0;
  // `wire` is kept until its turn to be added. A duplicate returns no sends and changes nothing.
  virtual Result<std::vector<ChunkSend>> on_chunk(std::uint32_t from, ReducePart part,
                                                  std::uint32_t chunk, const SharedBytes& wire) = 0;
  // It has been taken.
  virtual bool has_taken(std::uint32_t from, ReducePart part, std::uint32_t chunk) const = 0;
  // The output is complete. Other members may still need sends handed out before.
  virtual bool done() const = 0;
  virtual Progress progress() const = 0;
  // Chunks go between this member and that one.
  virtual bool deals_with(std::uint32_t rank) const = 0;
};

}  // namespace swarmline
