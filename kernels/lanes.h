// The lanes of one device: queues of work that go on by themselves, each in order and beside the
// others. What one lane does with what another has made comes after an event.
//   Lanes:     kCompute, where kernels are queued by others, too; kIn and kOut, for tensors between
//              the host's memory and the device's.
//   Ownership: memory is its holder's, and goes back with it: whoever frees it has waited for what
//              was queued with it.
//   Thread:    one at a time; synchronize() from any.
//   Errors:    kDevice with the device's sentence; kOutOfMemory from allocate().
//   Source:    CUDA's streams and events.
#pragma once

#include <cstddef>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"

namespace swarmline::kernels {

enum class Lane { kCompute, kIn, kOut };
// kHost: page-locked, so that copies go on by themselves.
enum class LaneMemoryKind { kDevice, kHost };

class LaneMemory {
 public:
  virtual ~LaneMemory() = default;
  virtual std::byte* data() const = 0;
  virtual std::size_t size() const = 0;
};

// Has passed until it is recorded for the first time.
class LaneEvent {
 public:
  virtual ~LaneEvent() = default;
};

class Lanes {
 public:
  virtual ~Lanes() = default;
  virtual Result<std::unique_ptr<LaneMemory>> allocate(LaneMemoryKind kind, std::size_t bytes) = 0;
  virtual Result<std::unique_ptr<LaneEvent>> make_event() = 0;
  // Queued; neither place may be touched before an event behind it has passed.
  virtual Result<void> copy(Lane lane, std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual Result<void> record(Lane lane, LaneEvent& event) = 0;
  // What is queued from now on comes after the event as it was recorded last.
  virtual Result<void> wait(Lane lane, LaneEvent& event) = 0;
  // This thread sleeps until the event, as it was recorded last, has passed.
  virtual Result<void> synchronize(LaneEvent& event) = 0;
};

}  // namespace swarmline::kernels
