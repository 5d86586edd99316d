#include "kernels/cuda/device_memory.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace swarmline::kernels::cuda {

Result<void> checked(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return {};
  cudaGetLastError();  // else the next launch, whoever's it is, reports this error once more
  return fail(ErrorCode::kDevice, "CUDA: " + std::string(what) + ": " + cudaGetErrorString(status));
}

Result<void> DeviceMemory::allocate(std::size_t bytes) {
  cudaFree(std::exchange(data_, nullptr));
  bytes_ = 0;
  if (const cudaError_t status = cudaMalloc(&data_, bytes); status != cudaSuccess)
    return checked(status, "making room for " + std::to_string(bytes) + " bytes");
  bytes_ = bytes;
  return checked(cudaMemset(data_, 0, bytes), "clearing memory");
}

Result<void> DeviceMemory::read(std::uint64_t at, MutableBytes bytes) const {
  SWARMLINE_CHECK(at <= bytes_ && bytes.size() <= bytes_ - at);
  return checked(
      cudaMemcpy(bytes.data(), as<std::byte>() + at, bytes.size(), cudaMemcpyDeviceToHost),
      "copying to the host");
}

Result<void> DeviceMemory::write(std::uint64_t at, BytesView bytes) {
  SWARMLINE_CHECK(at <= bytes_ && bytes.size() <= bytes_ - at);
  return checked(
      cudaMemcpy(as<std::byte>() + at, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
      "copying to the device");
}

}  // namespace swarmline::kernels::cuda
