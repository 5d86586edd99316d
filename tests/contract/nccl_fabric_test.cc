// Groups over NCCL: what becomes of errors of each call, and of communicators.
#include <string>

#include <gtest/gtest.h>

#include "tests/contract/fabric_pair.h"

namespace swarmline {
namespace {

TEST(NcclFabric, AnErrorOfEachCallIsSaidAndLeavesNoCommunicator) {
  for (const std::string call : {"choose_device", "make_stream", "make_id", "init", "state",
                                 "group_start", "send", "receive", "group_end", "has_ended"}) {
    const std::uint32_t rank = call == "make_id" ? 0 : 1;
    FabricPair pair(FabricKind::kNccl);
    pair.calls(rank).fail_next(call);
    pair.open_groups();
    pair.exchange(0);
    pair.exchange(1);
    ASSERT_TRUE(pair.have_results(1)) << call;
    EXPECT_EQ(pair.results_[rank].front(), "the double fails in " + call);
    EXPECT_NE(pair.results_[1 - rank].front(), "well") << call;
    pair.close();
    EXPECT_EQ(pair.nccl_world_->communicators, 0) << call;
    EXPECT_EQ(pair.nccl_world_->listening, 0) << call;
  }
}

TEST(NcclFabric, AnErrorOfClosingIsNobodys) {
  for (const std::string call : {"finalize", "destroy"}) {
    FabricPair pair(FabricKind::kNccl);
    pair.open_groups();
    for (const std::uint32_t rank : {0U, 1U}) pair.exchange(rank);
    ASSERT_TRUE(pair.have_results(1));
    EXPECT_EQ(pair.results_[0].front() + pair.results_[1].front(), "wellwell");
    EXPECT_EQ(pair.memory_[1], pair.memory_[2]);
    EXPECT_EQ(pair.memory_[3], pair.memory_[0]);
    pair.calls(1).fail_next(call);
    pair.close();
    EXPECT_TRUE(pair.calls(1).has_failed()) << call;
    EXPECT_EQ(pair.nccl_world_->communicators, 0) << call;
  }
}

TEST(NcclFabric, ManyGroupsAfterEachOtherLeaveNoCommunicator) {
  FabricPair pair(FabricKind::kNccl);
  for (std::size_t group = 1; group <= 20; ++group) {
    pair.open_groups();
    for (const std::uint32_t rank : {0U, 1U}) pair.exchange(rank);
    if (group % 3 == 0) continue;  // dropped before they have met
    ASSERT_TRUE(pair.have_results(1));
    pair.results_.clear();
  }
  pair.close();
  EXPECT_EQ(pair.nccl_world_->communicators, 0);
  EXPECT_EQ(pair.nccl_world_->listening, 0);
}

// NCCL would listen for the others as long as the process lives.
TEST(NcclFabric, AnIdThatBringsNobodyTogetherIsEnded) {
  for (const bool joins : {false, true}) {
    FabricPair pair(FabricKind::kNccl);
    unsigned words = 0;
    pair.on_word = [&](Buffer& word) {
      ++words;
      word = Buffer(1);  // the other one never hears of it
    };
    pair.open_groups();
    ASSERT_TRUE(pair.runtime_.run_until([&] { return words == 1; }, std::chrono::seconds(20)));
    const auto has_joined = [&] {
      const std::lock_guard lock(pair.nccl_world_->mutex);
      return pair.nccl_world_->communicators == 1;
    };
    for (int looks = 0; joins && !has_joined() && looks < 2000; ++looks)
      pair.runtime_.run_until([] { return false; }, std::chrono::milliseconds(10));
    EXPECT_TRUE(!joins || has_joined());
    EXPECT_EQ(pair.nccl_world_->listening, 1);
    pair.close();
    EXPECT_EQ(pair.nccl_world_->communicators, 0);
    EXPECT_EQ(pair.nccl_world_->listening, 0);
  }
}

TEST(NcclFabric, OffersNothingWithoutALibrary) {
  AsioRuntime runtime;
  const DeviceFabric fabric(runtime, {});
  for (const FabricKind kind : {FabricKind::kNone, FabricKind::kNccl, FabricKind::kIpc})
    EXPECT_FALSE(fabric.offers(kind));
}

}  // namespace
}  // namespace swarmline
