// A device without a GPU, in place of CUDA's runtime: its memory, streams, events and copies, for
// the sources of libswarmline_cuda.so as they are.
//   Late:    what is queued is done when somebody waits for it, a stream's work in order, and
//            streams in none but that of their events; or earlier, as drawn (CudaOrder). So what is
//            read or used again too early is not yet, or no longer, there.
//   Strict:  fails a test where a copy or a kernel touches memory of another side, or past an
//            allocation, and where an asynchronous copy has a side that is not page-locked.
//   Kernels: cuda_stand_in_kernels.cc runs their bodies, or their twins on the host.
//   Thread:  any.
//   Source:  CUDA's rules of streams. A stream that waits for the default one is the default one.
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

// While it lives: how often something queued is done before it must be. Else never.
class CudaOrder {
 public:
  CudaOrder(std::uint64_t seed, double share);
  CudaOrder(const CudaOrder&) = delete;
  CudaOrder& operator=(const CudaOrder&) = delete;
  ~CudaOrder();
};

// A kernel: `touches` lies in the device's memory, or is null.
cudaError_t queue_kernel(cudaStream_t stream, const std::vector<const void*>& touches,
                         std::function<void()> call);

}  // namespace swarmline::testing
