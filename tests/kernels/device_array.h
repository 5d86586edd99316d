// Device memory for tests of CUDA code, and a fixture that skips, with the reason, without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <vector>

#include <gtest/gtest.h>

namespace swarmline::testing {

// n bytes at an address that is `misaligned` past a 256-byte boundary.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t n, std::size_t misaligned = 0) : n_(n), misaligned_(misaligned) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), n + misaligned + 1), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0, n + misaligned + 1), cudaSuccess);
  }
  DeviceBytes(const void* from, std::size_t n, std::size_t misaligned = 0)
      : DeviceBytes(n, misaligned) {
    EXPECT_EQ(cudaMemcpy(data(), from, n, cudaMemcpyHostToDevice), cudaSuccess);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  DeviceBytes(DeviceBytes&&) = delete;
  ~DeviceBytes() { cudaFree(data_); }

  std::uint8_t* data() { return data_ + misaligned_; }
  void copy_to(void* to) {
    EXPECT_EQ(cudaMemcpy(to, data(), n_, cudaMemcpyDeviceToHost), cudaSuccess);
  }

 private:
  std::size_t n_;
  std::size_t misaligned_;
  std::uint8_t* data_ = nullptr;
};

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(status);
    }
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  cudaStream_t stream_ = nullptr;
};

}  // namespace swarmline::testing
