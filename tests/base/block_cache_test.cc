#include "base/block_cache.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/units.h"

namespace swarmline {
namespace {

TEST(BlockCache, AFreedBlockIsTheNextOfItsSize) {
  BlockCache cache;
  std::byte* const block = cache.take(2 * kMiB);
  std::memset(block, 1, 2 * kMiB);
  EXPECT_TRUE(cache.give_back(block));
  std::byte* const other = cache.take(3 * kMiB);
  EXPECT_EQ(cache.kept_bytes(), 0U) << "no more than 3 MiB were lent at once";
  std::byte* const again = cache.take(2 * kMiB);
  EXPECT_TRUE(cache.give_back(again));
  EXPECT_EQ(cache.take(2 * kMiB - 100), again) << "the same pages";
  EXPECT_TRUE(cache.give_back(again));
  EXPECT_TRUE(cache.give_back(other));
}

TEST(BlockCache, LentAndKeptNeverTakeMoreThanWasLentAtOnce) {
  BlockCache cache;
  std::size_t most = 0;
  std::vector<std::byte*> lent;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const std::size_t size = (1 + i * i % 7) * 256 * kKiB;
    lent.push_back(cache.take(size));
    most = std::max(most, cache.lent_bytes());
    EXPECT_LE(cache.lent_bytes() + cache.kept_bytes(), most);
    if (i % 5 != 0 && lent.size() > i % 3) {
      EXPECT_TRUE(cache.give_back(lent[i % lent.size()]));
      lent.erase(lent.begin() + static_cast<std::ptrdiff_t>(i % lent.size()));
    }
  }
  for (std::byte* const block : lent) EXPECT_TRUE(cache.give_back(block));
  EXPECT_EQ(cache.lent_bytes(), 0U);
  EXPECT_LE(cache.kept_bytes(), most);
  EXPECT_GT(cache.kept_bytes(), most / 2);
}

TEST(BlockCache, WhatNobodyTakesGoesBackToTheSystem) {
  BlockCache cache;
  std::byte* const idle = cache.take(8 * kMiB);
  EXPECT_TRUE(cache.give_back(cache.take(2 * kMiB)));
  EXPECT_TRUE(cache.give_back(idle));
  for (std::uint64_t i = 0; i < BlockCache::kIdleTakesMax; ++i)
    EXPECT_TRUE(cache.give_back(cache.take(kMiB)));
  EXPECT_EQ(cache.kept_bytes(), 9 * kMiB);
  EXPECT_TRUE(cache.give_back(cache.take(kMiB)));
  EXPECT_EQ(cache.kept_bytes(), kMiB);
}

TEST(BlockCache, LargeOnesBeginAtAHugePage) {
  BlockCache cache;
  std::byte* const block = cache.take(BlockCache::kHugeBlockBytes + 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % BlockCache::kHugePageBytes, 0U);
  EXPECT_EQ(cache.lent_bytes(), BlockCache::kHugeBlockBytes + BlockCache::kHugePageBytes);
  std::memset(block, 1, BlockCache::kHugeBlockBytes + 1);
  EXPECT_TRUE(cache.give_back(block));
}

TEST(BlockCache, WhatIsNotLentIsNotTakenBack) {
  BlockCache cache;
  int somewhere = 0;
  EXPECT_FALSE(cache.give_back(reinterpret_cast<std::byte*>(&somewhere)));
  std::byte* const block = cache.take(kMiB);
  EXPECT_TRUE(cache.give_back(block));
  EXPECT_FALSE(cache.give_back(block)) << "twice";
}

TEST(BlockCache, MoreThanThereIsThrows) {
  BlockCache cache;
  EXPECT_TRUE(cache.give_back(cache.take(kMiB)));
  EXPECT_THROW(cache.take(std::size_t{1} << 60), std::bad_alloc);
  EXPECT_EQ(cache.kept_bytes(), 0U) << "all that was kept was tried with";
  EXPECT_TRUE(cache.give_back(cache.take(kMiB)));
}

TEST(BlockCache, ThreadsTakeAndGiveBackAtOnce) {
  BlockCache cache;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&cache, t] {
      for (std::size_t i = 0; i < 300; ++i) {
        const std::size_t size = (1 + i % 3) * 256 * kKiB;
        std::byte* const block = cache.take(size);
        block[0] = block[size - 1] = static_cast<std::byte>(t);
        EXPECT_EQ(block[0], static_cast<std::byte>(t));
        EXPECT_EQ(block[size - 1], static_cast<std::byte>(t));
        EXPECT_TRUE(cache.give_back(block));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.lent_bytes(), 0U);
}

}  // namespace
}  // namespace swarmline
