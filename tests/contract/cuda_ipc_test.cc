// CUDA's inter-process communication as libswarmline_cuda.so calls it (cuda_fabric.cc as it is),
// over stand-ins for CUDA's runtime, here, and for its driver (stand_in_driver.cc). CUDA cuts small
// allocations out of larger blocks and maps the whole block elsewhere.
#include <array>
#include <cstring>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <vector>

#include <gtest/gtest.h>

#include "engine/fabric/device_fabric_entry.h"

extern "C" const swarmline::DeviceFabricEntry swarmline_cuda_fabric;

namespace {

std::vector<void*> opened, closed;
cudaError_t open_answer = cudaSuccess;

}  // namespace

// What cuda_fabric.cc calls of the runtime. A handle is the memory's address.
extern "C" {
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "as the stand-in was told";
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  *handle = {};
  std::memcpy(handle, &memory, sizeof memory);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned) {
  if (open_answer != cudaSuccess) return open_answer;
  std::memcpy(memory, &handle, sizeof *memory);
  opened.push_back(*memory);
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* memory) {
  closed.push_back(memory);
  return cudaSuccess;
}
}

namespace swarmline {
namespace {

class CudaIpc : public ::testing::Test {
 protected:
  CudaIpc() {
    opened.clear();
    closed.clear();
    open_answer = cudaSuccess;
    for (std::size_t i = 0; i < block_.size(); ++i) block_[i] = static_cast<std::byte>(i % 251);
    auto made = swarmline_cuda_fabric.make_ipc(0);
    EXPECT_TRUE(made) << made.error().what;
    if (made) ipc_ = std::move(*made);
  }
  void SetUp() override { ASSERT_NE(ipc_, nullptr); }
  static void driver_says(void* base, std::size_t bytes) {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(driver, nullptr);
    const auto set =
        reinterpret_cast<void (*)(void*, std::size_t)>(::dlsym(driver, "stand_in_range"));
    ASSERT_NE(set, nullptr) << "it is no stand-in";
    set(base, bytes);
  }
  // As the process that has it sees it.
  SharedMemory shared(std::uint64_t at, std::uint64_t bytes) {
    driver_says(allocation(), kBytes);
    auto shared = ipc_->share(allocation() + at, bytes);
    EXPECT_TRUE(shared) << shared.error().what;
    return shared ? *shared : SharedMemory();
  }
  std::byte* allocation() { return block_.data() + kBegin; }

  static constexpr std::size_t kBegin = 512, kBytes = 256;
  std::array<std::byte, 4096> block_;
  std::unique_ptr<IpcApi> ipc_;
};

TEST_F(CudaIpc, MemoryInALargerBlockIsReadFromWhereItIs) {
  const SharedMemory memory = shared(100, 20);
  EXPECT_EQ(memory.offset, 100U);
  driver_says(block_.data(), block_.size());
  const auto mapped = ipc_->map(memory.handle);
  ASSERT_TRUE(mapped) << mapped.error().what;
  EXPECT_EQ(mapped->memory, allocation());
  EXPECT_EQ(mapped->bytes, block_.size() - kBegin) << "no byte past the block";
  std::array<std::byte, 20> copied{};
  auto stream = ipc_->make_stream();
  ASSERT_TRUE(stream);
  ASSERT_TRUE(ipc_->copy(**stream, copied.data(), mapped->memory + memory.offset, copied.size()));
  EXPECT_EQ(std::memcmp(copied.data(), allocation() + 100, copied.size()), 0);
  ipc_->unmap(mapped->memory);
  EXPECT_EQ(closed, opened);
}

TEST_F(CudaIpc, MemoryPastAnAllocationIsNotShared) {
  driver_says(allocation(), kBytes);
  EXPECT_TRUE(ipc_->share(allocation() + 100, kBytes - 100));
  const auto refused = ipc_->share(allocation() + 100, kBytes - 99);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kDevice);
}

TEST_F(CudaIpc, WhatTheDriverDoesNotKnowIsNotLeftMapped) {
  const SharedMemory memory = shared(0, kBytes);
  driver_says(nullptr, 0);
  EXPECT_FALSE(ipc_->map(memory.handle));
  EXPECT_EQ(opened.size(), 1U);
  EXPECT_EQ(closed, opened);
  open_answer = cudaErrorInvalidResourceHandle;
  const auto refused = ipc_->map(memory.handle);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().what,
            "CUDA: mapping another process's memory: as the stand-in was told");
  EXPECT_EQ(closed.size(), 1U);
}

TEST_F(CudaIpc, ADeviceHasTheNameThatItsToolsPrint) {
  EXPECT_EQ(swarmline_cuda_fabric.uuid(0).value_or(""), "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0");
}

}  // namespace
}  // namespace swarmline
