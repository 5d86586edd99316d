// Memory of a CUDA device, and CUDA's errors as values.
//   Ownership: DeviceMemory owns what it allocated.
//   Thread:    one at a time; the caller has chosen the device. Copies come after all that the
//              default stream holds, and are done when the call returns.
//   Errors:    kDevice with CUDA's sentence; kOutOfMemory: no room, with what set_on_full() gave
//              asked first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "kernels/cuda/device_state.h"

namespace swarmline::kernels::cuda {

// libtorch computes on it as well: what it still does with the same memory is done first.
inline constexpr cudaStream_t kDefaultStream = nullptr;

Result<void> checked(cudaError_t status, std::string_view what);

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data_); }

  // Zeros for every stream, at a 256-byte boundary; what it held before is freed first. After an
  // error it is empty.
  Result<void> allocate(std::size_t bytes);
  template <typename T>
  Result<void> allocate_copy(std::span<const T> values) {
    SWARMLINE_TRY(allocate(values.size_bytes()));
    return write(0, std::as_bytes(values));
  }
  Result<void> read(std::uint64_t at, MutableBytes bytes) const;
  Result<void> write(std::uint64_t at, BytesView bytes);
  std::size_t size() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace swarmline::kernels::cuda
