// The shared memory of one link between two processes: a ring each way. Made by the end that was
// dialled, handed to the other one as a descriptor.
//   Ownership: the mapping and its descriptor are released with the object, whatever the other
//              process does.
//   Errors:    kIo: the system has none. kCorrupt: a descriptor that is no such memory: its size
//              must be exact and sealed, for memory that shrinks ends who reads it.
//   Bounds:    2 * kShmRingBytes, taken as they are written.
#pragma once

#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "base/units.h"
#include "engine/net/shm/shm_ring.h"

namespace swarmline {

inline constexpr std::size_t kShmRingBytes = 1 * kMiB;

class ShmSegment {
 public:
  static Result<std::unique_ptr<ShmSegment>> make();
  // Takes the descriptor, and closes it where it is none.
  static Result<std::unique_ptr<ShmSegment>> open(int descriptor);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  int descriptor() const { return descriptor_; }
  // `first`: of the end that made it, towards the other one.
  ShmRingHead& head(bool first);
  MutableBytes ring(bool first);

 private:
  ShmSegment(int descriptor, std::byte* at) : descriptor_(descriptor), at_(at) {}
  static Result<std::unique_ptr<ShmSegment>> map(int descriptor);

  int descriptor_;
  std::byte* at_;
};

}  // namespace swarmline
