// The device of cuda_stand_in.h: what CUDA's calls are made of. All of it under Locked.
#pragma once

#include <chrono>
#include <cstddef>
#include <cuda_runtime.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "tests/kernels/cuda_stand_in.h"

namespace swarmline::testing {

struct StandInStream;
// An event as it was recorded once.
struct StandInMark {
  StandInStream* stream = nullptr;
  bool passed = false;
  std::chrono::steady_clock::time_point at{};
};
struct StandInEvent {
  std::shared_ptr<StandInMark> last;  // null: never recorded
};
struct StandInWork {
  std::function<void()> call;
  std::shared_ptr<StandInMark> after;  // null: whatever is before it in its stream
  std::vector<const void*> touches;
  bool is_mark = false;  // passes on a lost device, too
};
struct StandInStream {
  bool is_default = false;  // or waits for it
  std::deque<StandInWork> queued;
};
enum class StandInSide { kDevice, kHost, kRegistered };
struct StandInBlock {
  std::size_t bytes = 0;
  StandInSide side = StandInSide::kDevice;
};

class StandInDevice {
 public:
  using Stream = StandInStream;
  using Work = StandInWork;
  using Side = StandInSide;

  static StandInDevice& get();

  // ---- Errors: CUDA's, of a call that begins, and of one that has waited.
  cudaError_t begin();
  cudaError_t begin_queued(Stream* stream);
  cudaError_t state() const { return lost_; }
  cudaError_t report(cudaError_t error) { return last_ = error; }
  cudaError_t take_last();

  // ---- Streams
  Stream* of(cudaStream_t stream);
  void add(Stream* stream) { streams_.push_back(stream); }
  void drop(Stream* stream);
  void queue(Stream* stream, Work work);
  void queue_copy(Stream* stream, void* to, const void* from, std::size_t bytes);
  void do_next(Stream* stream);  // one that has something queued
  void finish(Stream* stream);
  void finish_all();
  void wait(const std::shared_ptr<StandInMark>& mark);

  // ---- Memory
  // At a boundary as CUDA's memory, and full of what nobody wrote. Null: no room.
  void* allocate(std::size_t bytes, Side side);
  // As cudaFree() does: when all that was queued is done.
  void free(void* memory, Side side);
  void lock_pages(const void* memory, std::size_t bytes);
  void unlock_pages(const void* memory);
  // Null: neither the device's memory nor page-locked.
  const StandInBlock* block_of(const void* at, std::size_t bytes) const;
  bool is_device(const void* at, std::size_t bytes) const;
  // Of the device; nothing: it is in none.
  std::optional<std::span<const std::byte>> allocation_of(const void* at) const;
  std::map<const void*, int> mapped;  // by other processes: how often
  // Whether the host has a side in it.
  bool count_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);

  std::recursive_mutex mutex;
  std::optional<Rng> rng;
  double share = 0;
  Crossed crossed;
  Held held;
  std::optional<std::size_t> room;
  struct Fault {
    std::uint64_t behind = 0;
    cudaError_t error = cudaSuccess;
    FaultKind kind = FaultKind::kOnce;
    bool has_happened = false;
  };
  std::uint64_t calls = 0;
  std::optional<Fault> fault;
  void mend() { fault.reset(), lost_ = last_ = cudaSuccess; }

 private:
  bool fails_now();

  Stream default_{.is_default = true};
  std::vector<Stream*> streams_{&default_};
  std::map<const std::byte*, StandInBlock> blocks_;
  cudaError_t lost_ = cudaSuccess, last_ = cudaSuccess;
};

struct Locked {
  std::unique_lock<std::recursive_mutex> lock{StandInDevice::get().mutex};
  StandInDevice* operator->() const { return &StandInDevice::get(); }
};

}  // namespace swarmline::testing
