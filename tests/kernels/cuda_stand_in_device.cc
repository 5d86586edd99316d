#include "tests/kernels/cuda_stand_in_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <gtest/gtest.h>

#include "base/check.h"

namespace swarmline::testing {
namespace {

constexpr std::size_t kBoundary = 256;
constexpr int kNotWritten = 0xDD, kBeyond = 0xBE;

std::size_t rounded(std::size_t bytes) {
  return (bytes / kBoundary + 1) * kBoundary;
}

}  // namespace

StandInDevice& StandInDevice::get() {
  static StandInDevice& all = *new StandInDevice;
  return all;
}

// ---- Errors -------------------------------------------------------------------------------------

bool StandInDevice::fails_now() {
  ++calls;
  if (!fault || fault->has_happened) return false;
  if (fault->behind > 0) return --fault->behind, false;
  return fault->has_happened = true;
}

cudaError_t StandInDevice::begin() {
  const bool fails = fails_now();
  if (lost_ != cudaSuccess) return lost_;
  if (!fails) return cudaSuccess;
  if (fault->kind == FaultKind::kLost) return lost_ = fault->error;
  return report(fault->error);
}

cudaError_t StandInDevice::begin_queued(Stream* stream) {
  if (!fault || fault->kind == FaultKind::kOnce) return begin();
  const bool fails = fails_now();
  if (lost_ != cudaSuccess) return lost_;
  if (fails) queue(stream, {.call = [this, error = fault->error] { lost_ = error; }});
  return lost_;
}

cudaError_t StandInDevice::take_last() {
  const cudaError_t last = std::exchange(last_, cudaSuccess);
  return lost_ != cudaSuccess ? lost_ : last;
}

// ---- Streams ------------------------------------------------------------------------------------

StandInStream* StandInDevice::of(cudaStream_t stream) {
  auto* const own = reinterpret_cast<Stream*>(stream);
  return own == nullptr || own->is_default ? &default_ : own;
}

void StandInDevice::drop(Stream* stream) {
  finish(stream);
  std::erase(streams_, stream);
}

void StandInDevice::queue(Stream* stream, Work work) {
  stream->queued.push_back(std::move(work));
  while (rng && rng->uniform() < share) {
    Stream* const drawn = streams_[rng->below(streams_.size())];
    if (!drawn->queued.empty()) do_next(drawn);
  }
}

void StandInDevice::queue_copy(Stream* stream, void* to, const void* from, std::size_t bytes) {
  queue(stream, {.call = [=] { std::memmove(to, from, bytes); }, .touches = {to, from}});
}

void StandInDevice::finish(Stream* stream) {
  while (!stream->queued.empty()) do_next(stream);
}
void StandInDevice::finish_all() {
  for (Stream* const stream : streams_) finish(stream);
}
void StandInDevice::wait(const std::shared_ptr<StandInMark>& mark) {
  while (mark && !mark->passed) do_next(mark->stream);
}

void StandInDevice::do_next(Stream* stream) {
  SWARMLINE_CHECK_MSG(!stream->queued.empty(), "an event that nobody records any more");
  const Work work = std::move(stream->queued.front());
  stream->queued.pop_front();
  wait(work.after);
  if (work.call && (lost_ == cudaSuccess || work.is_mark)) work.call();
}

// ---- Memory -------------------------------------------------------------------------------------

void* StandInDevice::allocate(std::size_t bytes, Side side) {
  if (side == Side::kDevice) {
    if (room && bytes > *room) return nullptr;
    if (room) *room -= bytes;
    held = {held.count + 1, held.bytes + bytes};
  }
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kBoundary, rounded(bytes)));
  std::memset(memory, kNotWritten, bytes);
  std::memset(memory + bytes, kBeyond, rounded(bytes) - bytes);
  blocks_[memory] = {bytes, side};
  return memory;
}

void StandInDevice::free(void* memory, Side side) {
  if (memory == nullptr) return;
  finish_all();
  const auto found = blocks_.find(static_cast<const std::byte*>(memory));
  ASSERT_TRUE(found != blocks_.end() && found->second.side == side) << "freed, but not its own";
  const std::size_t bytes = found->second.bytes;
  EXPECT_FALSE(mapped.contains(memory)) << "freed, but mapped elsewhere";
  EXPECT_TRUE(std::all_of(found->first + bytes, found->first + rounded(bytes),
                          [](std::byte at) { return at == std::byte{kBeyond}; }))
      << "written past an allocation of " << bytes << " bytes";
  blocks_.erase(found);
  if (side == Side::kDevice) {
    held = {held.count - 1, held.bytes - bytes};
    if (room) *room += bytes;
  }
  std::memset(memory, kNotWritten, bytes);
  std::free(memory);
}

void StandInDevice::lock_pages(const void* memory, std::size_t bytes) {
  EXPECT_EQ(block_of(memory, bytes), nullptr) << "page-locked already";
  blocks_[static_cast<const std::byte*>(memory)] = {bytes, Side::kRegistered};
}

void StandInDevice::unlock_pages(const void* memory) {
  const auto found = blocks_.find(static_cast<const std::byte*>(memory));
  ASSERT_TRUE(found != blocks_.end() && found->second.side == Side::kRegistered);
  for (const Stream* const stream : streams_)
    for (const Work& work : stream->queued)
      for (const void* const touched : work.touches)
        EXPECT_NE(block_of(touched, 0), &found->second) << "unlocked, but not yet copied";
  blocks_.erase(found);
}

const StandInBlock* StandInDevice::block_of(const void* at, std::size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(at);
  auto found = blocks_.upper_bound(begin);
  if (found == blocks_.begin()) return nullptr;
  --found;
  if (begin >= found->first + std::max<std::size_t>(found->second.bytes, 1)) return nullptr;
  EXPECT_LE(bytes, static_cast<std::size_t>(found->first + found->second.bytes - begin))
      << "past an allocation's end";
  return &found->second;
}

bool StandInDevice::is_device(const void* at, std::size_t bytes) const {
  const StandInBlock* const block = block_of(at, bytes);
  return block != nullptr && block->side == Side::kDevice;
}

std::optional<std::span<const std::byte>> StandInDevice::allocation_of(const void* at) const {
  if (!is_device(at, 0)) return std::nullopt;
  const auto found = std::prev(blocks_.upper_bound(static_cast<const std::byte*>(at)));
  return std::span(found->first, found->second.bytes);
}

bool StandInDevice::count_copy(const void* to, const void* from, std::size_t bytes,
                               cudaMemcpyKind kind) {
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

// ---- cuda_stand_in.h ----------------------------------------------------------------------------

Crossed crossed() {
  return Locked()->crossed;
}
Held held() {
  return Locked()->held;
}
std::uint64_t cuda_calls() {
  return Locked()->calls;
}

CudaOrder::CudaOrder(std::uint64_t seed, double share) {
  const Locked all;
  all->rng.emplace(seed);
  all->share = share;
}
CudaOrder::~CudaOrder() {
  Locked()->rng.reset();
}

CudaFault::CudaFault(std::uint64_t behind, cudaError_t error, FaultKind kind) {
  Locked()->fault = {.behind = behind, .error = error, .kind = kind};
}
CudaFault::~CudaFault() {
  const Locked all;
  all->finish_all();
  all->mend();
}
bool CudaFault::has_happened() const {
  return Locked()->fault->has_happened;
}

CudaRoom::CudaRoom(std::size_t bytes) {
  Locked()->room = bytes;
}
CudaRoom::~CudaRoom() {
  Locked()->room.reset();
}

cudaError_t queue_kernel(cudaStream_t stream, const std::vector<const void*>& touches,
                         std::function<void()> call) {
  const Locked all;
  for (const void* const at : touches)
    EXPECT_TRUE(at == nullptr || all->is_device(at, 0)) << "a kernel in the host's memory";
  StandInStream* const own = all->of(stream);
  if (all->begin_queued(own) == cudaSuccess)
    all->queue(own, {.call = std::move(call), .touches = touches});
  return all->take_last();  // whoever left it there
}

}  // namespace swarmline::testing
