#include "tests/kernels/cuda_stand_in.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/rng.h"

namespace swarmline::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Stream;
// An event as it was recorded once.
struct Mark {
  Stream* stream = nullptr;
  bool passed = false;
  Clock::time_point at{};
};
struct Event {
  std::shared_ptr<Mark> last;  // null: never recorded
};
struct Work {
  std::function<void()> call;
  std::shared_ptr<Mark> after;  // null: whatever is before it in its stream
};
struct Stream {
  bool is_default = false;  // or waits for it
  std::deque<Work> queued;
};
enum class Side { kDevice, kHost };
struct Block {
  std::size_t bytes = 0;
  Side side = Side::kDevice;
};

class Device {
 public:
  std::recursive_mutex mutex;
  std::optional<Rng> rng;
  double share = 0;
  Crossed crossed;

  Stream* of(cudaStream_t stream) {
    auto* const own = reinterpret_cast<Stream*>(stream);
    return own == nullptr || own->is_default ? &default_ : own;
  }
  void add(Stream* stream) { streams_.push_back(stream); }
  void drop(Stream* stream) {
    finish(stream);
    std::erase(streams_, stream);
  }

  void queue(Stream* stream, Work work) {
    stream->queued.push_back(std::move(work));
    while (rng && rng->uniform() < share) {
      Stream* const drawn = streams_[rng->below(streams_.size())];
      if (!drawn->queued.empty()) do_next(drawn);
    }
  }
  void finish(Stream* stream) {
    while (!stream->queued.empty()) do_next(stream);
  }
  void finish_all() {
    for (Stream* const stream : streams_) finish(stream);
  }
  void wait(const std::shared_ptr<Mark>& mark) {
    while (mark && !mark->passed) do_next(mark->stream);
  }

  // At a boundary as CUDA's memory, and full of what nobody wrote.
  void* allocate(std::size_t bytes, Side side) {
    constexpr std::size_t kBoundary = 256;
    void* const memory = std::aligned_alloc(kBoundary, (bytes / kBoundary + 1) * kBoundary);
    std::memset(memory, 0xDD, bytes);
    blocks_[static_cast<const std::byte*>(memory)] = {bytes, side};
    return memory;
  }
  // As cudaFree() does: when all that was queued is done.
  void free(void* memory, Side side) {
    if (memory == nullptr) return;
    finish_all();
    const auto found = blocks_.find(static_cast<const std::byte*>(memory));
    ASSERT_TRUE(found != blocks_.end() && found->second.side == side) << "freed, but not its own";
    blocks_.erase(found);
    std::free(memory);
  }
  // Null: neither the device's memory nor page-locked.
  const Block* block_of(const void* at, std::size_t bytes) const {
    const auto* const begin = static_cast<const std::byte*>(at);
    auto found = blocks_.upper_bound(begin);
    if (found == blocks_.begin()) return nullptr;
    --found;
    if (begin >= found->first + std::max<std::size_t>(found->second.bytes, 1)) return nullptr;
    EXPECT_LE(bytes, static_cast<std::size_t>(found->first + found->second.bytes - begin))
        << "past an allocation's end";
    return &found->second;
  }
  bool is_device(const void* at, std::size_t bytes) const {
    const Block* const block = block_of(at, bytes);
    return block != nullptr && block->side == Side::kDevice;
  }
  // Whether the host has a side in it.
  bool count_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const bool to_device = is_device(to, bytes), from_device = is_device(from, bytes);
    const bool agrees =
        kind == cudaMemcpyDefault ||
        kind == (to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                           : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost));
    EXPECT_TRUE(agrees) << "a copy of another kind than " << kind;
    if (to_device && !from_device) crossed.to_device += bytes;
    if (!to_device && from_device) crossed.to_host += bytes;
    return !to_device || !from_device;
  }

 private:
  void do_next(Stream* stream) {
    SWARMLINE_CHECK_MSG(!stream->queued.empty(), "an event that nobody records any more");
    const Work work = std::move(stream->queued.front());
    stream->queued.pop_front();
    wait(work.after);
    if (work.call) work.call();
  }

  Stream default_{.is_default = true};
  std::vector<Stream*> streams_{&default_};
  std::map<const std::byte*, Block> blocks_;
};

Device& device() {
  static Device& all = *new Device;
  return all;
}

struct Locked {
  std::unique_lock<std::recursive_mutex> lock{device().mutex};
  Device* operator->() const { return &device(); }
};

void queue_copy(Device& all, cudaStream_t stream, void* to, const void* from, std::size_t bytes) {
  all.queue(all.of(stream), {.call = [=] { std::memmove(to, from, bytes); }});
}

}  // namespace

Crossed crossed() {
  return Locked()->crossed;
}

CudaOrder::CudaOrder(std::uint64_t seed, double share) {
  const Locked all;
  all->rng.emplace(seed);
  all->share = share;
}
CudaOrder::~CudaOrder() {
  Locked()->rng.reset();
}

cudaError_t queue_kernel(cudaStream_t stream, const std::vector<const void*>& touches,
                         std::function<void()> call) {
  const Locked all;
  for (const void* const at : touches)
    EXPECT_TRUE(at == nullptr || all->is_device(at, 0)) << "a kernel in the host's memory";
  all->queue(all->of(stream), {.call = std::move(call)});
  return cudaSuccess;
}

}  // namespace swarmline::testing

// ---- CUDA's calls -------------------------------------------------------------------------------

using swarmline::testing::Clock;
using swarmline::testing::Event;
using swarmline::testing::Locked;
using swarmline::testing::Mark;
using swarmline::testing::Side;
using swarmline::testing::Stream;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "an error of the stand-in";
}
cudaError_t cudaDeviceSynchronize() {
  Locked()->finish_all();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = bytes == 0 ? nullptr : Locked()->allocate(bytes, Side::kDevice);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  Locked()->free(memory, Side::kDevice);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = Locked()->allocate(bytes, Side::kHost);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  Locked()->free(memory, Side::kHost);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  const Locked all;
  *attributes = {};
  attributes->type = all->is_device(at, 0) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const Locked all;
  EXPECT_TRUE(all->is_device(to, bytes)) << "set in the host's memory";
  all->queue(all->of(stream), {.call = [=] { std::memset(to, value, bytes); }});
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const Locked all;
  for (const void* const side : {static_cast<const void*>(to), from})
    EXPECT_NE(all->block_of(side, bytes), nullptr) << "neither the device's nor page-locked";
  all->count_copy(to, from, bytes, kind);
  queue_copy(*all.operator->(), stream, to, from, bytes);
  return cudaSuccess;
}
// Comes back when it is done, but for a copy within the device's memory.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  const Locked all;
  const bool has_host = all->count_copy(to, from, bytes, kind);
  queue_copy(*all.operator->(), nullptr, to, from, bytes);
  if (has_host) all->finish(all->of(nullptr));
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row)
    cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch,
                    static_cast<const char*>(from) + row * from_pitch, width, kind, stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const Locked all;
  auto* const made = new Stream{.is_default = flags != cudaStreamNonBlocking};
  if (!made->is_default) all->add(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Locked all;
  auto* const made = reinterpret_cast<Stream*>(stream);
  all->drop(made);
  delete made;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Locked all;
  all->finish(all->of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Locked all;
  all->queue(all->of(stream), {.after = reinterpret_cast<Event*>(event)->last});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Locked all;
  delete reinterpret_cast<Event*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Locked all;
  const auto mark = std::make_shared<Mark>(all->of(stream));
  reinterpret_cast<Event*>(event)->last = mark;
  all->queue(mark->stream, {.call = [mark] {
               mark->passed = true;
               mark->at = Clock::now();
             }});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Locked all;
  all->wait(reinterpret_cast<Event*>(event)->last);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Locked all;
  const auto at = [](cudaEvent_t event) { return reinterpret_cast<Event*>(event)->last->at; };
  *milliseconds = std::chrono::duration<float, std::milli>(at(end) - at(begin)).count();
  return cudaSuccess;
}

}  // extern "C"
