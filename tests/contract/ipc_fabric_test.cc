// Groups whose members map each other's memory: errors of each call, what is mapped, words that do
// not fit.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/fabric/ipc_member.h"
#include "engine/fabric/ipc_words.h"
#include "tests/contract/fabric_pair.h"

namespace swarmline {
namespace {

using Way = FabricTransfer::Way;

TEST(IpcFabric, AnErrorOfEachCallIsSaidAndLeavesNothingMapped) {
  for (const std::string call :
       {"choose_device", "make_stream", "share", "map", "copy", "has_ended"}) {
    FabricPair pair(FabricKind::kIpc);
    pair.calls(1).fail_next(call);
    pair.open_groups();
    pair.exchange(0);
    pair.exchange(1);
    ASSERT_TRUE(pair.have_results(1)) << call;
    EXPECT_EQ(pair.results_[1].front(), "the double fails in " + call);
    EXPECT_NE(pair.results_[0].front(), "well") << call;
    pair.close();
    EXPECT_EQ(pair.ipc_world_->mappings, 0) << call;
  }
}

TEST(IpcFabric, AnAllocationIsMappedOnceAndSoManyAtATime) {
  FabricPair pair(FabricKind::kIpc);
  pair.open_groups();
  std::vector<std::vector<std::byte>> memory(kIpcMappedMax + 20, std::vector<std::byte>(64));
  std::size_t count = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    for (std::size_t i = 0; i < memory.size(); i += 2, ++count) {
      pair.exchange(
          0, {{Way::kSend, 1, memory[i].data(), 64}, {Way::kSend, 1, memory[i + 1].data(), 64}});
      pair.exchange(1, {{Way::kReceive, 0, pair.memory_[2].data(), 64},
                        {Way::kReceive, 0, pair.memory_[3].data(), 64}});
      ASSERT_TRUE(pair.have_results(count + 1));
      ASSERT_EQ(pair.results_[1].back(), "well");
    }
    if (k == 0) EXPECT_EQ(pair.ipc_world_->mappings, kIpcMappedMax);
  }
  EXPECT_EQ(pair.ipc_world_->mappings_most, kIpcMappedMax);
  const int before = pair.ipc_world_->maps;
  for (int k = 0; k < 5; ++k) {
    pair.exchange(0, {{Way::kSend, 1, memory.back().data(), 64}});
    pair.exchange(1, {{Way::kReceive, 0, pair.memory_[2].data(), 64}});
  }
  ASSERT_TRUE(pair.have_results(count + 5));
  EXPECT_EQ(pair.ipc_world_->maps, before) << "mapped once more";
  pair.close();
  EXPECT_EQ(pair.ipc_world_->mappings, 0);
}

// What one says of its memory is checked against the allocation.
TEST(IpcFabric, OffersBeyondAnAllocationAreNotRead) {
  for (const std::uint64_t offset :
       {std::uint64_t{33}, ~std::uint64_t{0}, std::uint64_t{1} << 40}) {
    FabricPair pair(FabricKind::kIpc);
    pair.on_word = [&](Buffer& word) {
      auto parsed = parse_ipc_word(word.bytes());
      ASSERT_TRUE(parsed.has_value());
      if (auto* const offer = std::get_if<IpcOffer>(&*parsed)) {
        offer->memory.offset = offset;
        word = to_word(*offer);
      }
    };
    pair.open_groups();
    pair.exchange(0, {{Way::kSend, 1, pair.memory_[0].data(), 1000}});
    pair.exchange(1, {{Way::kReceive, 0, pair.memory_[3].data(), 1000}});
    ASSERT_TRUE(pair.have_results(1));
    EXPECT_NE(pair.results_[1].front().find("of an allocation of 1032 bytes"), std::string::npos)
        << pair.results_[1].front();
    EXPECT_EQ(pair.memory_[3], std::vector<std::byte>(1000));
  }
}

TEST(IpcFabric, OffersThatDoNotFitWhatIsReceivedAreAnError) {
  FabricPair pair(FabricKind::kIpc);
  pair.open_groups();
  pair.exchange(0, {{Way::kSend, 1, pair.memory_[0].data(), 999}});
  pair.exchange(1, {{Way::kReceive, 0, pair.memory_[3].data(), 1000}});
  ASSERT_TRUE(pair.have_results(1));
  EXPECT_NE(pair.results_[1].front().find("rank 0 sends other transfers than rank 1 receives"),
            std::string::npos);
}

TEST(IpcFabric, WordsOutOfTheirOrderAreRefused) {
  FabricPair pair(FabricKind::kIpc);
  pair.open_groups();
  FabricGroup& group = *pair.groups_[0];
  const auto is_taken = [&](const auto& word) {
    return group.on_word(1, to_word(word).bytes()).has_value();
  };
  EXPECT_FALSE(is_taken(IpcTaken{.turn = 0})) << "nothing was offered";
  pair.exchange(0, {{Way::kSend, 1, pair.memory_[0].data(), 1000}});
  EXPECT_FALSE(is_taken(IpcTaken{.turn = 0})) << "nor yet";
  EXPECT_FALSE(is_taken(IpcTaken{.turn = 1}));
  EXPECT_FALSE(is_taken(IpcOffer{.turn = 2, .index = 1, .count = 2, .bytes = 1}));
  EXPECT_FALSE(is_taken(IpcOffer{.turn = 2, .index = 0, .count = 0, .bytes = 1}));
  EXPECT_FALSE(is_taken(IpcOffer{.turn = 2, .index = 0, .count = 1, .bytes = 0}));
  EXPECT_FALSE(is_taken(IpcOffer{.turn = 2, .count = kIpcTransfersMax + 1, .bytes = 1}));
  EXPECT_TRUE(is_taken(IpcOffer{.turn = 2, .index = 0, .count = 2, .bytes = 1}));
  EXPECT_FALSE(is_taken(IpcOffer{.turn = 2, .index = 0, .count = 2, .bytes = 1}));
  EXPECT_FALSE(is_taken(IpcOffer{.turn = 3, .index = 1, .count = 2, .bytes = 1}));
  EXPECT_FALSE(is_taken(IpcOffer{.turn = 2, .index = 1, .count = 3, .bytes = 1}));
  EXPECT_TRUE(is_taken(IpcOffer{.turn = 2, .index = 1, .count = 2, .bytes = 1}));
  EXPECT_FALSE(is_taken(IpcOffer{.turn = 3, .index = 0, .count = 1, .bytes = 1}))
      << "one turn's offers wait at a time";
}

}  // namespace
}  // namespace swarmline
