// CUDA's calls, of the device in cuda_stand_in_device.h.

#include "tests/kernels/cuda_stand_in.h"

#include <cstring>

#include <gtest/gtest.h>

#include "tests/kernels/cuda_stand_in_device.h"

using swarmline::testing::Locked;
using swarmline::testing::StandInEvent;
using swarmline::testing::StandInMark;
using swarmline::testing::StandInSide;
using swarmline::testing::StandInStream;

namespace {

StandInEvent* own(cudaEvent_t event) {
  return reinterpret_cast<StandInEvent*>(event);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return Locked()->begin();
}
cudaError_t cudaSetDevice(int) {
  return Locked()->begin();
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  return Locked()->begin();
}
cudaError_t cudaGetLastError() {
  return Locked()->take_last();
}
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) return "out of memory";
  if (error == cudaErrorIllegalAddress) return "an illegal memory access was encountered";
  return "an error of the stand-in";
}
cudaError_t cudaDeviceSynchronize() {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  all->finish_all();
  return all->state();
}

// ---- Memory -------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  *memory = bytes == 0 ? nullptr : all->allocate(bytes, StandInSide::kDevice);
  return bytes > 0 && *memory == nullptr ? all->report(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const Locked all;
  all->free(memory, StandInSide::kDevice);
  return all->state();
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  *memory = all->allocate(bytes, StandInSide::kHost);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  const Locked all;
  all->free(memory, StandInSide::kHost);
  return all->state();
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  all->lock_pages(memory, bytes);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  const Locked all;
  all->unlock_pages(memory);
  return all->state();
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  const Locked all;
  *total = size_t{1} << 40;
  *free_bytes = all->room.value_or(*total);
  return all->begin();
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  *attributes = {};
  attributes->type = all->is_device(at, 0) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

// ---- Copies -------------------------------------------------------------------------------------

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const Locked all;
  StandInStream* const queue = all->of(stream);
  if (const cudaError_t error = all->begin_queued(queue); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  EXPECT_TRUE(all->is_device(to, bytes)) << "set in the host's memory";
  all->queue(queue, {.call = [=] { std::memset(to, value, bytes); }, .touches = {to}});
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Locked all;
  StandInStream* const queue = all->of(stream);
  if (const cudaError_t error = all->begin_queued(queue); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  for (const void* const side : {static_cast<const void*>(to), from})
    EXPECT_NE(all->block_of(side, bytes), nullptr) << "neither the device's nor page-locked";
  all->count_copy(to, from, bytes, kind);
  all->queue_copy(queue, to, from, bytes);
  return cudaSuccess;
}

// Comes back when it is done, but for a copy within the device's memory; and from pageable memory
// when that has been read.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const Locked all;
  StandInStream* const queue = all->of(nullptr);
  if (const cudaError_t error = all->begin_queued(queue); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  const bool has_host = all->count_copy(to, from, bytes, kind);
  if (has_host && all->is_device(to, 0) && all->block_of(from, bytes) == nullptr) {
    all->finish(queue);
    const auto* const first = static_cast<const std::byte*>(from);
    const auto staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
    all->queue(queue, {.call = [=] { std::memcpy(to, staged->data(), bytes); }, .touches = {to}});
    return all->state();
  }
  all->queue_copy(queue, to, from, bytes);
  if (has_host) all->finish(queue);
  return all->state();
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row) {
    const cudaError_t error =
        cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch,
                        static_cast<const char*>(from) + row * from_pitch, width, kind, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// ---- Streams and events -------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  auto* const made = new StandInStream{.is_default = flags != cudaStreamNonBlocking};
  if (!made->is_default) all->add(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return Locked()->begin();
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  EXPECT_EQ(priority, -5) << "not before all others";
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Locked all;
  auto* const made = reinterpret_cast<StandInStream*>(stream);
  all->drop(made);
  delete made;
  return all->state();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  all->finish(all->of(stream));
  return all->state();
}
// One thing more is done each time that somebody asks.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  StandInStream* const asked = all->of(stream);
  if (asked->queued.empty()) return all->state();
  all->do_next(asked);
  return all->state() != cudaSuccess ? all->state() : all->report(cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  all->queue(all->of(stream), {.after = own(event)->last});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const cudaError_t error = Locked()->begin();
  if (error == cudaSuccess) *event = reinterpret_cast<cudaEvent_t>(new StandInEvent);
  return error;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Locked all;
  delete own(event);
  return all->state();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  const auto mark = std::make_shared<StandInMark>(all->of(stream));
  own(event)->last = mark;
  const auto pass = [mark] {
    mark->passed = true;
    mark->at = std::chrono::steady_clock::now();
  };
  all->queue(mark->stream, {.call = pass, .is_mark = true});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Locked all;
  if (const cudaError_t error = all->begin(); error != cudaSuccess) return error;
  all->wait(own(event)->last);
  return all->state();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Locked all;
  const auto at = [](cudaEvent_t event) { return own(event)->last->at; };
  *milliseconds = std::chrono::duration<float, std::milli>(at(end) - at(begin)).count();
  return all->begin();
}

}  // extern "C"
