// What two neighbouring tokens merge into, by open addressing. Thread: immutable once filled.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace swarmline {

class PairTable {
 public:
  static constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
  struct Merge {
    std::uint32_t rank = kNoRank;  // kNoRank: they do not
    std::uint32_t token = 0;
  };

  PairTable() : entries_(1) {}
  explicit PairTable(std::size_t pairs) : entries_(std::bit_ceil(2 * pairs + 2)) {}

  // The last one counts where a pair is put twice. No more than `pairs`.
  void put(std::uint32_t left, std::uint32_t right, Merge merge) {
    Entry& entry = entries_[place(key(left, right))];
    entry.key = key(left, right);
    entry.merge = merge;
  }
  Merge find(std::uint32_t left, std::uint32_t right) const {
    const Entry& entry = entries_[place(key(left, right))];
    return entry.merge;
  }

 private:
  static constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();
  struct Entry {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static std::uint64_t key(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t{left} << 32 | right;
  }
  std::size_t place(std::uint64_t key) const {
    std::uint64_t mixed = key * 0x9E3779B97F4A7C15ULL;
    mixed ^= mixed >> 29;
    std::size_t at = mixed & (entries_.size() - 1);
    while (entries_[at].key != key && entries_[at].key != kEmpty)
      at = (at + 1) & (entries_.size() - 1);
    return at;
  }

  std::vector<Entry> entries_;  // a power of two, at most half full
};

}  // namespace swarmline
