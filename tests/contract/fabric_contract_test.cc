// What every backend of the fabric's door does.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/contract/fabric_world.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
using Way = FabricTransfer::Way;

constexpr std::byte kUntouched{0x5A};

std::vector<std::byte> drawn(std::uint64_t seed, std::size_t bytes) {
  Rng rng(seed);
  std::vector<std::byte> values(bytes);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = rng.next_u64();
    std::memcpy(values.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return values;
}

class FabricContract : public ::testing::TestWithParam<FabricBackend> {
 protected:
  void make(std::uint32_t ranks, const FabricWorldOptions& options = {}) {
    members_.reset();
    world_ = make_fabric_world(GetParam(), ranks, options);
    members_ = std::make_unique<FabricMembers>(*world_, ranks);
  }
  void make_open(std::uint32_t ranks, const FabricWorldOptions& options = {}) {
    make(ranks, options);
    members_->open_all();
  }
  void exchange(std::uint32_t rank, std::vector<FabricTransfer> transfers) {
    members_->group(rank).exchange(std::move(transfers), [this, rank](Result<void> result) {
      results_[rank].push_back(std::move(result));
    });
  }
  // All of them have had so many results.
  bool have_results(const std::vector<std::uint32_t>& ranks, std::size_t count) {
    return world_->run_until(
        [&] {
          return std::ranges::all_of(
              ranks, [&](std::uint32_t rank) { return results_[rank].size() >= count; });
        },
        200s);
  }
  bool all_well(std::uint32_t rank) {
    return std::ranges::all_of(results_[rank], [](const auto& result) { return bool(result); });
  }
  std::string error_of(std::uint32_t rank, std::size_t exchange) {
    const Result<void>& result = results_[rank].at(exchange);
    return result ? "none" : to_string(result.error().code);
  }

  std::unique_ptr<FabricWorld> world_;
  std::unique_ptr<FabricMembers> members_;
  std::map<std::uint32_t, std::vector<Result<void>>> results_;
};

TEST_P(FabricContract, WhatOneSendsTheOtherReceives) {
  for (const std::size_t bytes : {1UL, 31UL, 4096UL, 3UL << 20}) {
    make_open(2);
    results_.clear();
    auto sent = drawn(bytes, bytes);
    std::vector<std::byte> received(bytes, kUntouched);
    exchange(0, {{Way::kSend, 1, sent.data(), bytes}});
    exchange(1, {{Way::kReceive, 0, received.data(), bytes}});
    EXPECT_TRUE(results_[0].empty() && results_[1].empty()) << "done within exchange()";
    ASSERT_TRUE(have_results({0, 1}, 1));
    EXPECT_TRUE(all_well(0) && all_well(1));
    EXPECT_EQ(received, sent) << bytes;
  }
}

TEST_P(FabricContract, AllToAll) {
  for (const std::uint32_t ranks : {2U, 3U, 8U, 16U}) {
    constexpr std::size_t kBytes = 5000;
    make_open(ranks);
    results_.clear();
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::byte>> sent, received;
    std::vector<std::uint32_t> all(ranks);
    std::iota(all.begin(), all.end(), 0U);
    for (const std::uint32_t rank : all) {
      std::vector<FabricTransfer> transfers;
      for (const std::uint32_t other : all) {
        if (other == rank) continue;
        sent[{rank, other}] = drawn(rank * 16 + other, kBytes);
        received[{other, rank}].assign(kBytes, kUntouched);
        transfers.push_back({Way::kSend, other, sent[{rank, other}].data(), kBytes});
        transfers.push_back({Way::kReceive, other, received[{other, rank}].data(), kBytes});
      }
      exchange(rank, std::move(transfers));
    }
    ASSERT_TRUE(have_results(all, 1)) << ranks;
    for (const std::uint32_t rank : all) EXPECT_TRUE(all_well(rank)) << error_of(rank, 0);
    EXPECT_EQ(received, sent) << ranks;
  }
}

TEST_P(FabricContract, ExchangesBelongTogetherByTheirNumbersAndTransfersByTheirOrder) {
  constexpr std::size_t kBytes = 1000;
  constexpr std::size_t kExchanges = 5;
  make_open(2);
  std::vector<std::vector<std::byte>> sent, received;
  for (std::size_t i = 0; i < 3 * kExchanges; ++i) {
    sent.push_back(drawn(i, kBytes + i));
    received.emplace_back(kBytes + i, kUntouched);
  }
  // In each exchange two that way and one back, named in different places; one end is later.
  for (std::size_t k = 0; k < kExchanges; ++k)
    exchange(0, {{Way::kReceive, 1, received[3 * k + 2].data(), received[3 * k + 2].size()},
                 {Way::kSend, 1, sent[3 * k].data(), sent[3 * k].size()},
                 {Way::kSend, 1, sent[3 * k + 1].data(), sent[3 * k + 1].size()}});
  world_->run_for(50ms);
  for (std::size_t k = 0; k < kExchanges; ++k) {
    exchange(1, {{Way::kReceive, 0, received[3 * k].data(), received[3 * k].size()},
                 {Way::kSend, 0, sent[3 * k + 2].data(), sent[3 * k + 2].size()},
                 {Way::kReceive, 0, received[3 * k + 1].data(), received[3 * k + 1].size()}});
    ASSERT_TRUE(have_results({0, 1}, k + 1));
  }
  EXPECT_TRUE(all_well(0) && all_well(1));
  EXPECT_EQ(received, sent);
}

TEST_P(FabricContract, AMemberTakesPartInTheTurnsThatItHasNothingIn) {
  constexpr std::size_t kBytes = 100;
  make_open(3);
  auto sent = drawn(1, kBytes), back = drawn(2, kBytes);
  std::vector<std::byte> received(kBytes), received_back(kBytes);
  exchange(0, {{Way::kSend, 1, sent.data(), kBytes}});
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  exchange(2, {});
  for (const std::uint32_t rank : {0U, 1U}) exchange(rank, {});
  exchange(2, {});
  exchange(0, {});
  exchange(2, {{Way::kSend, 1, back.data(), kBytes}});
  exchange(1, {{Way::kReceive, 2, received_back.data(), kBytes}});
  ASSERT_TRUE(have_results({0, 1, 2}, 3));
  for (const std::uint32_t rank : {0U, 1U, 2U}) EXPECT_TRUE(all_well(rank));
  EXPECT_EQ(received, sent);
  EXPECT_EQ(received_back, back);
}

TEST_P(FabricContract, ExchangesThatWereAskedForBeforeTheWordsCameAreDone) {
  constexpr std::size_t kBytes = 64;
  make(2);
  auto sent = drawn(1, kBytes);
  std::vector<std::byte> received(kBytes);
  members_->open(1);
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  world_->run_for(50ms);
  members_->open(0);
  exchange(0, {{Way::kSend, 1, sent.data(), kBytes}});
  ASSERT_TRUE(have_results({0, 1}, 1));
  EXPECT_TRUE(all_well(0) && all_well(1));
  EXPECT_EQ(received, sent);
}

TEST_P(FabricContract, AMemberThatNeverComesIsADeadline) {
  constexpr std::size_t kBytes = 64;
  make(3, {.patience = 300ms});
  auto sent = drawn(1, kBytes);
  std::vector<std::byte> received(kBytes);
  members_->open(0);
  members_->open(1);
  exchange(0, {{Way::kSend, 1, sent.data(), kBytes}});
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  exchange(0, {{Way::kReceive, 2, received.data(), kBytes}});
  ASSERT_TRUE(have_results({0}, 2));
  ASSERT_TRUE(have_results({1}, 1));
  if (world_->kind() == FabricKind::kNccl) {  // a communicator has all of its members
    EXPECT_EQ(error_of(0, 0), "deadline");
    EXPECT_EQ(error_of(1, 0), "deadline");
  }
  EXPECT_EQ(error_of(0, 1), "deadline") << "those that wait end with it";
  exchange(0, {{Way::kSend, 1, sent.data(), kBytes}});
  EXPECT_EQ(results_[0].size(), 2U) << "done within exchange()";
  ASSERT_TRUE(have_results({0}, 3));
  EXPECT_EQ(error_of(0, 2), "deadline") << "later ones at once";
}

TEST_P(FabricContract, AnExchangeThatTheOtherDoesNotBeginIsADeadline) {
  constexpr std::size_t kBytes = 64;
  make_open(2, {.patience = 500ms});
  auto sent = drawn(1, kBytes);
  std::vector<std::byte> received(kBytes, kUntouched);
  exchange(0, {{Way::kSend, 1, sent.data(), kBytes}});
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  ASSERT_TRUE(have_results({0, 1}, 1));
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  ASSERT_TRUE(have_results({1}, 2));
  EXPECT_EQ(error_of(1, 0), "none");
  EXPECT_EQ(error_of(1, 1), "deadline");
}

// Whoever is dropped is not called any more, and its memory is its own again; then the other.
TEST_P(FabricContract, DroppedGroupsTouchNothing) {
  constexpr std::size_t kBytes = 256 << 10;
  for (const std::uint32_t first : {0U, 1U}) {
    for (const Duration wait : {0ms, 1ms, 250ms}) {
      make_open(2);
      results_.clear();
      std::vector<std::vector<std::byte>> sent, received;
      for (std::size_t i = 0; i < 4; ++i) {
        sent.push_back(drawn(i, kBytes));
        received.emplace_back(kBytes, kUntouched);
      }
      for (std::size_t i = 0; i < 4; ++i) {
        exchange(0, {{Way::kSend, 1, sent[i].data(), kBytes}});
        exchange(1, {{Way::kReceive, 0, received[i].data(), kBytes}});
      }
      world_->run_for(wait);
      const auto fill = [&](std::uint32_t rank) {
        for (auto& memory : rank == 0 ? sent : received)
          std::ranges::fill(memory, static_cast<std::byte>(rank + 1));
      };
      const std::size_t done = results_[first].size();
      members_->drop(first);
      // Memory that others map is read until they have dropped their groups, too.
      const bool may_be_read = first == 0 && world_->kind() == FabricKind::kIpc;
      if (!may_be_read) fill(first);
      world_->run_for(20ms);
      EXPECT_EQ(results_[first].size(), done) << "called after it was dropped";
      if (first == 0) {
        // What has come is what was sent, or nothing of it.
        for (std::size_t i = 0; i < results_[1].size(); ++i)
          EXPECT_TRUE(!results_[1][i] || received[i] == drawn(i, kBytes)) << i;
      }
      members_->drop(1 - first);
      if (may_be_read) fill(first);
      fill(1 - first);
      world_->run_for(100ms);
      for (const auto& memory : sent)
        EXPECT_EQ(memory, std::vector<std::byte>(kBytes, std::byte{1}));
      for (const auto& memory : received)
        EXPECT_EQ(memory, std::vector<std::byte>(kBytes, std::byte{2}));
    }
  }
}

TEST_P(FabricContract, AFreshGroupAfterALossHasOnlyThoseWhoLive) {
  constexpr std::size_t kBytes = 4096;
  make_open(2);
  auto sent = drawn(1, kBytes);
  std::vector<std::byte> received(kBytes, kUntouched);
  exchange(0, {{Way::kSend, 1, sent.data(), kBytes}});
  exchange(0, {{Way::kSend, 1, sent.data(), kBytes}});
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  ASSERT_TRUE(have_results({0, 1}, 1));
  for (int round = 0; round < 3; ++round) {
    members_->open(1);
    members_->open(0);
    results_.clear();
    auto again = drawn(static_cast<std::uint64_t>(round) + 2, kBytes);
    exchange(0, {{Way::kReceive, 1, received.data(), kBytes}});
    exchange(1, {{Way::kSend, 0, again.data(), kBytes}});
    ASSERT_TRUE(have_results({0, 1}, 1));
    EXPECT_TRUE(all_well(0) && all_well(1));
    EXPECT_EQ(received, again);
  }
}

TEST_P(FabricContract, WhoIsDroppedByItsDoneIsCalledNoMore) {
  constexpr std::size_t kBytes = 64;
  make_open(2);
  auto sent = drawn(1, kBytes);
  std::vector<std::byte> received(kBytes), next(kBytes);
  int calls = 0;
  members_->group(0).exchange({{Way::kSend, 1, sent.data(), kBytes}}, [&](Result<void>) {
    ++calls;
    members_->drop(0);
  });
  members_->group(0).exchange({}, [&](Result<void>) { ++calls; });
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  ASSERT_TRUE(have_results({1}, 1));
  world_->run_for(100ms);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(received, sent);
}

TEST_P(FabricContract, AnErrorIsTheDevicesAndEndsTheGroup) {
  constexpr std::size_t kBytes = 64;
  make_open(2, {.patience = 500ms});
  auto sent = drawn(1, kBytes);
  std::vector<std::byte> received(kBytes, kUntouched);
  exchange(0, {{Way::kSend, 1, sent.data(), kBytes}});
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  ASSERT_TRUE(have_results({0, 1}, 1));
  world_->fail_next(1);
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  exchange(0, {{Way::kSend, 1, sent.data(), kBytes}});
  ASSERT_TRUE(have_results({1}, 3));
  EXPECT_EQ(error_of(1, 1), "device");
  EXPECT_EQ(error_of(1, 2), "device");
  EXPECT_FALSE(results_[1][1].error().what.empty());
  ASSERT_TRUE(have_results({0}, 2));
  EXPECT_NE(error_of(0, 1), "none");
}

TEST_P(FabricContract, WordsThatAreNoneOfTheGroupChangeNothing) {
  constexpr std::size_t kBytes = 64;
  make(2);
  std::vector<Buffer> words;
  members_->on_word_sent = [&](std::uint32_t, std::uint32_t to, const Buffer& word) {
    if (to == 1) words.push_back(Buffer::copy_of(word.bytes()));
  };
  members_->open(1);
  const auto refuses = [&](std::uint32_t from, BytesView word) {
    const Result<void> taken = members_->group(1).on_word(from, word);
    EXPECT_FALSE(taken.has_value());
    if (!taken) EXPECT_EQ(taken.error().code, ErrorCode::kCorrupt);
  };
  refuses(0, {});
  refuses(0, as_bytes("no word"));
  refuses(0, drawn(1, kFabricWordBytesMax));
  auto sent = drawn(1, kBytes);
  std::vector<std::byte> received(kBytes);
  members_->open(0);
  exchange(0, {{Way::kSend, 1, sent.data(), kBytes}});
  exchange(1, {{Way::kReceive, 0, received.data(), kBytes}});
  ASSERT_TRUE(have_results({0, 1}, 1));
  ASSERT_FALSE(words.empty());
  for (const Buffer& word : words) {
    refuses(0, word.bytes().first(word.size() - 1));
    refuses(0, word.bytes());  // once more
    refuses(1, word.bytes());  // from itself
    refuses(2, word.bytes());  // from nobody
  }
  EXPECT_EQ(received, sent);
  exchange(0, {{Way::kReceive, 1, sent.data(), kBytes}});
  exchange(1, {{Way::kSend, 0, received.data(), kBytes}});
  ASSERT_TRUE(have_results({0, 1}, 2));
  EXPECT_TRUE(all_well(0) && all_well(1));
}

SWARMLINE_FOR_EVERY_FABRIC(FabricContract);

}  // namespace
}  // namespace swarmline
