#include "base/block_cache.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <sys/mman.h>

#include <sanitizer/asan_interface.h>

#include "base/check.h"

namespace swarmline {
namespace {

constexpr std::size_t kPageBytes = 4096;

std::size_t rounded(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

std::size_t block_size(std::size_t size_bytes) {
  return rounded(size_bytes, size_bytes < BlockCache::kHugeBlockBytes ? kPageBytes
                                                                      : BlockCache::kHugePageBytes);
}

// Null: there is no memory.
std::byte* map(std::size_t size) {
  void* const p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}

void unmap(std::byte* block, std::size_t size) {
  if (size > 0) SWARMLINE_CHECK(munmap(block, size) == 0);
}

// At a multiple of huge pages, which is cut out of a larger mapping.
std::byte* map_huge(std::size_t size) {
  std::byte* const all = map(size + BlockCache::kHugePageBytes);
  if (all == nullptr) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(all);
  const std::size_t before = rounded(address, BlockCache::kHugePageBytes) - address;
  std::byte* const block = all + before;
  unmap(all, before);
  unmap(block + size, BlockCache::kHugePageBytes - before);
  madvise(block, size, MADV_HUGEPAGE);  // a hint: kernels without it serve small pages
  return block;
}

std::byte* new_block(std::size_t size) {
  return size < BlockCache::kHugeBlockBytes ? map(size) : map_huge(size);
}

}  // namespace

BlockCache& BlockCache::shared() {
  // Never destroyed: what static objects hold is given back at the process's end.
  static auto* const cache = new BlockCache;
  return *cache;
}

BlockCache::~BlockCache() {
  SWARMLINE_CHECK(lent_.empty());
  while (!kept_.empty()) release_oldest();
}

std::byte* BlockCache::take(std::size_t size_bytes) {
  SWARMLINE_CHECK(size_bytes > 0);
  const std::size_t size = block_size(size_bytes);
  const std::lock_guard lock(mutex_);
  ++takes_;
  release_idle();
  std::byte* block = take_kept(size);
  if (block == nullptr) {
    release_until_fits(size);
    block = new_block(size);
  }
  while (block == nullptr && !kept_.empty()) {
    release_oldest();
    block = new_block(size);
  }
  if (block == nullptr) throw std::bad_alloc();
  ASAN_POISON_MEMORY_REGION(block, size);
  ASAN_UNPOISON_MEMORY_REGION(block, size_bytes);
  lent_.emplace(block, size);
  lent_bytes_ += size;
  lent_bytes_most_ = std::max(lent_bytes_most_, lent_bytes_);
  return block;
}

bool BlockCache::give_back(std::byte* block) {
  if (reinterpret_cast<std::uintptr_t>(block) % kPageBytes != 0) return false;
  const std::lock_guard lock(mutex_);
  const auto lent = lent_.extract(block);
  if (lent.empty()) return false;
  const std::size_t size = lent.mapped();
  // Who reads it from now on, or behind its end before, is found out by AddressSanitizer.
  ASAN_POISON_MEMORY_REGION(block, size);
  lent_bytes_ -= size;
  kept_bytes_ += size;
  kept_.push_back({block, size, takes_});
  kept_by_size_[size].push_back(std::prev(kept_.end()));
  return true;
}

std::size_t BlockCache::lent_bytes() const {
  const std::lock_guard lock(mutex_);
  return lent_bytes_;
}

std::size_t BlockCache::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

// The one that was given back last: most of it may still be in the processor's caches.
std::byte* BlockCache::take_kept(std::size_t size) {
  const auto found = kept_by_size_.find(size);
  if (found == kept_by_size_.end()) return nullptr;
  const KeptList::iterator last = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) kept_by_size_.erase(found);
  std::byte* const block = last->block;
  kept_bytes_ -= size;
  kept_.erase(last);
  return block;
}

void BlockCache::release_until_fits(std::size_t bytes) {
  const std::size_t most = std::max(lent_bytes_most_, lent_bytes_ + bytes);
  while (!kept_.empty() && lent_bytes_ + kept_bytes_ + bytes > most) release_oldest();
}

void BlockCache::release_idle() {
  while (!kept_.empty() && takes_ - kept_.front().since > kIdleTakesMax) release_oldest();
}

void BlockCache::release_oldest() {
  const Kept oldest = kept_.front();
  const auto same = kept_by_size_.find(oldest.size);
  same->second.erase(same->second.begin());
  if (same->second.empty()) kept_by_size_.erase(same);
  kept_.pop_front();
  kept_bytes_ -= oldest.size;
  ASAN_UNPOISON_MEMORY_REGION(oldest.block, oldest.size);
  unmap(oldest.block, oldest.size);
}

}  // namespace swarmline
