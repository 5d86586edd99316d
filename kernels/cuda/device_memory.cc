#include "kernels/cuda/device_memory.h"

#include <atomic>
#include <string>
#include <utility>

#include "base/check.h"

namespace swarmline::kernels::cuda {
namespace {

std::atomic<OnFull> on_full = nullptr;

}  // namespace

void set_on_full(OnFull release) {
  on_full = release;
}

const char* launch_error() {
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

const char* choose_device(int device) {
  const cudaError_t status = cudaSetDevice(device);
  const bool chosen = status == cudaSuccess;
  // Where it can't be had a waiting thread takes a core, and nothing else changes.
  if (chosen) cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync);
  cudaGetLastError();
  return chosen ? nullptr : cudaGetErrorString(status);
}

// An error that was one call's is reported once. A lost device says so in every call, so that the
// stream asked matters to the waiting alone: a transfer between devices may be stuck in another.
const char* device_fault() {
  cudaGetLastError();
  if (cudaStreamSynchronize(kDefaultStream) == cudaSuccess) return nullptr;
  cudaGetLastError();
  const cudaError_t status = cudaStreamSynchronize(kDefaultStream);
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

Result<void> checked(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return {};
  cudaGetLastError();  // else the next launch, whoever's it is, reports this error once more
  const ErrorCode code =
      status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kDevice;
  return fail(code, "CUDA: " + std::string(what) + ": " + cudaGetErrorString(status));
}

Result<void> DeviceMemory::allocate(std::size_t bytes) {
  cudaFree(std::exchange(data_, nullptr));
  bytes_ = 0;
  cudaError_t status = cudaMalloc(&data_, bytes);
  if (const OnFull release = on_full; status == cudaErrorMemoryAllocation && release != nullptr) {
    cudaGetLastError();
    release();
    status = cudaMalloc(&data_, bytes);
  }
  if (status != cudaSuccess)
    return checked(status, "making room for " + std::to_string(bytes) + " bytes");
  status = cudaMemset(data_, 0, bytes);
  // It is cleared in the default stream; others don't wait for that.
  if (status == cudaSuccess) status = cudaStreamSynchronize(kDefaultStream);
  if (status != cudaSuccess) {
    cudaFree(std::exchange(data_, nullptr));
    return checked(status, "clearing memory");
  }
  bytes_ = bytes;
  return {};
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
