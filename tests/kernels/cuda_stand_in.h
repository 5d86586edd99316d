// A device without a GPU, in place of CUDA's runtime: its memory, streams, events and copies, for
// the sources of libswarmline_cuda.so as they are.
//   Late:    what is queued is done when somebody waits for it, a stream's work in order, and
//            streams in none but that of their events; or earlier, as drawn (CudaOrder). So what is
//            read or used again too early is not yet, or no longer, there.
//   Strict:  fails a test where a copy or a kernel touches memory of another side, or past an
//            allocation, where an asynchronous copy has a side that is not page-locked, and where
//            pages are unlocked that a queued copy touches.
//   Faults:  a call fails (CudaFault), or the device has no more room (CudaRoom).
//   Kernels: those over Team run as they are launched (cuda_stand_in_launches.cc), others' twins on
//            the host do (cuda_stand_in_kernels.cc).
//   Thread:  any.
//   Source:  CUDA's rules of streams, of copies from pageable memory, and of errors. A stream that
//            waits for the default one is the default one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <functional>
#include <vector>

namespace swarmline::testing {

// Bytes over the bus, each copy as it was queued.
struct Crossed {
  std::uint64_t to_device = 0;
  std::uint64_t to_host = 0;
  bool operator==(const Crossed&) const = default;
  Crossed operator-(const Crossed& before) const {
    return {to_device - before.to_device, to_host - before.to_host};
  }
};
Crossed crossed();

// Of the device: allocations and their bytes.
struct Held {
  std::size_t count = 0;
  std::size_t bytes = 0;
  bool operator==(const Held&) const = default;
};
Held held();

// While it lives: how often something queued is done before it must be. Else never.
class CudaOrder {
 public:
  CudaOrder(std::uint64_t seed, double share);
  CudaOrder(const CudaOrder&) = delete;
  CudaOrder& operator=(const CudaOrder&) = delete;
  ~CudaOrder();
};

// Calls that may fail, so far: all but those that give something back.
std::uint64_t cuda_calls();

// While it lives: one call fails, behind so many that go well. kLost: the device fails in what that
// call asks of it, when it comes to that, and in everything afterwards.
enum class FaultKind { kOnce, kLost };
class CudaFault {
 public:
  CudaFault(std::uint64_t behind, cudaError_t error, FaultKind kind);
  CudaFault(const CudaFault&) = delete;
  CudaFault& operator=(const CudaFault&) = delete;
  ~CudaFault();
  bool has_happened() const;
};

// While it lives: the device has room for so many bytes more.
class CudaRoom {
 public:
  explicit CudaRoom(std::size_t bytes);
  CudaRoom(const CudaRoom&) = delete;
  CudaRoom& operator=(const CudaRoom&) = delete;
  ~CudaRoom();
};

// A kernel: `touches` lies in the device's memory, or is null.
cudaError_t queue_kernel(cudaStream_t stream, const std::vector<const void*>& touches,
                         std::function<void()> call);

}  // namespace swarmline::testing
