// Groups over NCCL: what becomes of errors of each call, and of communicators.
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/fabric/device_fabric.h"
#include "engine/runtime/asio_runtime.h"
#include "tests/contract/nccl_double.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
using Way = FabricTransfer::Way;

// Two members, whose words travel at once; rank 1 has the double whose calls fail.
class NcclPair {
 public:
  void open() {
    for (const std::uint32_t rank : {1U, 0U}) {
      nccl_[rank] = std::make_shared<NcclDouble>(world_);
      fabrics_[rank] = std::make_unique<DeviceFabric>(
          runtime_, DeviceFabricParts{.nccl = nccl_[rank], .patience = 400ms});
    }
  }
  void open_groups() {
    for (const std::uint32_t rank : {1U, 0U})
      groups_[rank] = fabrics_[rank]->open(
          FabricKind::kNccl, rank, 2,
          [this, rank](auto to, auto word) { (void)groups_[to]->on_word(rank, word.bytes()); });
  }
  void exchange(std::uint32_t rank) {
    std::vector<FabricTransfer> transfers;
    for (const Way way : {Way::kSend, Way::kReceive})
      transfers.push_back(
          {way, 1 - rank, memory_[2 * rank + (way == Way::kSend ? 0 : 1)].data(), 1000});
    groups_[rank]->exchange(std::move(transfers), [this, rank](Result<void> result) {
      results_[rank].push_back(result ? "well" : result.error().what);
    });
  }
  bool have_results(std::size_t count) {
    return runtime_.run_until(
        [&] { return results_[0].size() >= count && results_[1].size() >= count; }, 20s);
  }
  void close() {
    groups_.clear();
    fabrics_.clear();
  }

  std::map<std::uint32_t, std::vector<std::byte>> memory_ = {
      {0, std::vector<std::byte>(1000, std::byte{1})},
      {1, std::vector<std::byte>(1000)},
      {2, std::vector<std::byte>(1000, std::byte{2})},
      {3, std::vector<std::byte>(1000)}};
  AsioRuntime runtime_;
  std::shared_ptr<NcclDoubleWorld> world_ = std::make_shared<NcclDoubleWorld>();
  std::map<std::uint32_t, std::shared_ptr<NcclDouble>> nccl_;
  std::map<std::uint32_t, std::unique_ptr<DeviceFabric>> fabrics_;
  std::map<std::uint32_t, std::unique_ptr<FabricGroup>> groups_;
  std::map<std::uint32_t, std::vector<std::string>> results_;
};

TEST(NcclFabric, AnErrorOfEachCallIsSaidAndLeavesNoCommunicator) {
  for (const std::string call : {"choose_device", "make_stream", "make_id", "init", "state",
                                 "group_start", "send", "receive", "group_end", "has_ended"}) {
    const std::uint32_t rank = call == "make_id" ? 0 : 1;
    NcclPair pair;
    pair.open();
    pair.nccl_[rank]->calls().fail_next(call);
    pair.open_groups();
    pair.exchange(0);
    pair.exchange(1);
    ASSERT_TRUE(pair.have_results(1)) << call;
    EXPECT_EQ(pair.results_[rank].front(), "the double fails in " + call);
    EXPECT_NE(pair.results_[1 - rank].front(), "well") << call;
    pair.close();
    EXPECT_EQ(pair.world_->communicators, 0) << call;
  }
}

TEST(NcclFabric, AnErrorOfClosingIsNobodys) {
  for (const std::string call : {"finalize", "destroy"}) {
    NcclPair pair;
    pair.open();
    pair.open_groups();
    for (const std::uint32_t rank : {0U, 1U}) pair.exchange(rank);
    ASSERT_TRUE(pair.have_results(1));
    EXPECT_EQ(pair.results_[0].front() + pair.results_[1].front(), "wellwell");
    EXPECT_EQ(pair.memory_[1], pair.memory_[2]);
    EXPECT_EQ(pair.memory_[3], pair.memory_[0]);
    pair.nccl_[1]->calls().fail_next(call);
    pair.close();
    EXPECT_TRUE(pair.nccl_[1]->calls().has_failed()) << call;
    EXPECT_EQ(pair.world_->communicators, 0) << call;
  }
}

TEST(NcclFabric, ManyGroupsAfterEachOtherLeaveNoCommunicator) {
  NcclPair pair;
  pair.open();
  for (std::size_t group = 1; group <= 20; ++group) {
    pair.open_groups();
    for (const std::uint32_t rank : {0U, 1U}) pair.exchange(rank);
    if (group % 3 == 0) continue;  // dropped before they have met
    ASSERT_TRUE(pair.have_results(1));
    pair.results_.clear();
  }
  pair.close();
  EXPECT_EQ(pair.world_->communicators, 0);
}

TEST(NcclFabric, OffersNothingWithoutALibrary) {
  AsioRuntime runtime;
  const DeviceFabric fabric(runtime, {});
  for (const FabricKind kind : {FabricKind::kNone, FabricKind::kNccl, FabricKind::kIpc})
    EXPECT_FALSE(fabric.offers(kind));
}

}  // namespace
}  // namespace swarmline
