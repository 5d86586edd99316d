// Large blocks of memory for what is taken and given back again and again in the same sizes:
// tensors and buffers. A block that is given back is kept for the next of its size, so that it
// costs no page faults again; general allocators split it instead, and training on CPUs takes up to
// a third more memory.
//   Units: bytes. Ownership: lent blocks are the caller's until given back, kept ones the cache's.
//   Thread: any.
//   Errors: take() throws std::bad_alloc.
//   Bounds: lent and kept blocks together never take more than those lent at once did at most, and
//   what is kept while kIdleTakesMax others are taken goes back to the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace swarmline {

class BlockCache {
 public:
  // Smaller ones are the C library's.
  static constexpr std::size_t kBlockBytesMin = 256U << 10;
  static constexpr std::uint64_t kIdleTakesMax = 4096;
  // From here on in pages of 2 MiB, which are 512 times fewer page faults.
  static constexpr std::size_t kHugeBlockBytes = 32U << 20;
  static constexpr std::size_t kHugePageBytes = 2U << 20;

  // Of the whole process; lives as long as it.
  static BlockCache& shared();

  BlockCache() = default;
  ~BlockCache();  // CHECKED: nothing is lent
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // At least `size_bytes` (above 0), uninitialised, at the beginning of a page.
  std::byte* take(std::size_t size_bytes);
  // False: it is no block that is lent.
  bool give_back(std::byte* block);

  std::size_t lent_bytes() const;
  std::size_t kept_bytes() const;

 private:
  struct Kept {
    std::byte* block;
    std::size_t size;
    std::uint64_t since;  // takes before
  };
  using KeptList = std::list<Kept>;

  std::byte* take_kept(std::size_t size);
  // Those that have been kept for longest go first.
  void release_until_fits(std::size_t bytes);
  void release_idle();
  void release_oldest();

  mutable std::mutex mutex_;
  std::unordered_map<std::byte*, std::size_t> lent_;
  KeptList kept_;  // in the order in which they were given back
  std::unordered_map<std::size_t, std::vector<KeptList::iterator>> kept_by_size_;
  std::uint64_t takes_ = 0;
  std::size_t lent_bytes_ = 0, kept_bytes_ = 0, lent_bytes_most_ = 0;
};

}  // namespace swarmline
