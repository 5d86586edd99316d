// What the programs that time a device share: memory there, and medians beside a copy of the same
// bytes, taken in turns. Errors of CUDA end the program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <functional>
#include <vector>

#include "base/order_statistics.h"

namespace swarmline::bench {

constexpr int kRounds = 15;
constexpr int kWarmups = 3;

inline void must(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

// False, and a line that says so, on a machine without a device.
inline bool has_device() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return true;
  std::printf("{\"skipped\": \"no CUDA device: %s\"}\n", cudaGetErrorString(status));
  return false;
}

class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) {
    must(cudaMalloc(&data_, bytes));
    must(cudaMemset(data_, 0, bytes));
  }
  template <typename T>
  explicit DeviceBytes(const std::vector<T>& values) : DeviceBytes(values.size() * sizeof(T)) {
    must(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(data_); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::uint8_t* bytes() const { return as<std::uint8_t>(); }
  float* floats() const { return as<float>(); }

 private:
  void* data_ = nullptr;
};

// Microseconds of one call.
inline double time_once(cudaStream_t stream, const std::function<void()>& call) {
  cudaEvent_t begin = nullptr, end = nullptr;
  must(cudaEventCreate(&begin));
  must(cudaEventCreate(&end));
  must(cudaEventRecord(begin, stream));
  call();
  must(cudaEventRecord(end, stream));
  must(cudaEventSynchronize(end));
  float milliseconds = 0;
  must(cudaEventElapsedTime(&milliseconds, begin, end));
  must(cudaEventDestroy(begin));
  must(cudaEventDestroy(end));
  return 1e3 * milliseconds;
}

struct BesideCopy {
  double us = 0;
  double copy_us = 0;
};
// `call` moves `bytes`, read and written; so does the copy, from `from` to `to`.
inline BesideCopy time_beside_copy(cudaStream_t stream, double bytes, const DeviceBytes& from,
                                   const DeviceBytes& to, const std::function<void()>& call) {
  const auto half = static_cast<std::size_t>(bytes / 2);
  const auto copy = [&] {
    must(cudaMemcpyAsync(to.bytes(), from.bytes(), half, cudaMemcpyDeviceToDevice, stream));
  };
  std::vector<double> times, copies;
  for (int round = -kWarmups; round < kRounds; ++round) {
    const double time = time_once(stream, call);
    const double copied = time_once(stream, copy);
    if (round < 0) continue;
    times.push_back(time);
    copies.push_back(copied);
  }
  return {median(times), median(copies)};
}

// One JSON object, a line.
inline void report(const char* op, const char* format, const char* dtype, std::uint32_t block,
                   double bytes, const BesideCopy& timed, double goal) {
  std::printf(
      "{\"op\": \"%s\", \"format\": \"%s\", \"dtype\": \"%s\", \"block\": %u, \"us\": %.2f, "
      "\"copy_us\": %.2f, \"gb_per_s\": %.0f, \"share\": %.3f, \"goal\": %.2f}\n",
      op, format, dtype, block, timed.us, timed.copy_us, bytes / timed.us / 1e3,
      timed.copy_us / timed.us, goal);
  std::fflush(stdout);
}

}  // namespace swarmline::bench
