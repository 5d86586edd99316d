// Who has the run's data, for those that fetch it.
#include "pipeline/coordinator/members/data_holders.h"

#include <gtest/gtest.h>

#include "pipeline/coordinator/members/balance_desk.h"
#include "pipeline/protocol/data_messages.h"
#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

// Hash number n of the data is n, in decimal, 64 digits long.
std::string hash_number(std::uint32_t number) {
  std::string digits = std::to_string(number);
  return std::string(kHashDigits - digits.size(), '0') + digits;
}

std::shared_ptr<const DataManifest> manifest_of_pieces(std::vector<std::uint32_t> of_files) {
  auto manifest = std::make_shared<DataManifest>();
  std::uint32_t number = 0;
  for (const std::uint32_t pieces : of_files) {
    DataFile& file = manifest->files.emplace_back();
    for (std::uint32_t i = 0; i < pieces; ++i) file.pieces += hash_number(number++);
  }
  return manifest;
}

class DataHoldersTest : public testing::Test {
 protected:
  Seat seated(std::uint16_t stage, bool serves, bool fetches) {
    const Seat seat = bench.seated(stage);
    bench.members.at(seat.peer).serves_data = serves;
    bench.members.at(seat.peer).fetches_data = fetches;
    return seat;
  }
  std::set<PeerId> told_last(const Seat& seat) {
    std::set<PeerId> holders;
    const auto told = bench.told<wire::DataHolders>(seat, MessageKind::kDataHolders);
    if (told.empty()) return holders;
    for (const wire::GroupMember& holder : told.back().holders()) {
      holders.insert(from_wire(holder.seat()).peer);
      EXPECT_EQ(holder.address(),
                bench.members.members().at(from_wire(holder.seat()).peer).address);
    }
    return holders;
  }
  std::string block(const Seat& seat, std::uint32_t number) {
    wire::WantHashes want;
    want.set_block(number);
    if (!data.on_want_hashes(seat, want)) return "refused";
    return bench.told<wire::DataHashes>(seat, MessageKind::kDataHashes).back().hashes();
  }

  PartsBench bench;
  DataHolders data{manifest_of_pieces({500, 0, 20, 10}), bench.members, bench.outbox, bench.events};
};

TEST_F(DataHoldersTest, WhoFetchesIsToldOfHoldersAndOfEachChangeOnce) {
  const Seat fetches = seated(0, false, true);
  const Seat one = seated(1, true, false);
  seated(1, false, false);
  data.tell();
  EXPECT_EQ(told_last(fetches), std::set<PeerId>{one.peer});
  data.tell();
  EXPECT_EQ(bench.count(fetches, MessageKind::kDataHolders), 1U);
  const Seat other = seated(0, true, false);
  data.tell();
  EXPECT_EQ(told_last(fetches), (std::set<PeerId>{one.peer, other.peer}));
  EXPECT_EQ(bench.count(other, MessageKind::kDataHolders), 0U);
  data.on_seat_lost(bench.lost(one));
  data.tell();
  EXPECT_EQ(told_last(fetches), std::set<PeerId>{other.peer});
}

TEST_F(DataHoldersTest, WhoFetchesAndReadsNothingIsToldNothing) {
  const Seat elsewhere = seated(1, false, true);
  seated(0, true, false);
  data.tell();
  EXPECT_EQ(bench.count(elsewhere, MessageKind::kDataHolders), 0U);
  EXPECT_TRUE(data.may_start());
}

TEST_F(DataHoldersTest, NoMoreThanSixteenAreNamedAndOthersForEach) {
  const Seat one = seated(0, false, true), two = seated(0, false, true);
  for (int i = 0; i < 20; ++i) seated(1, true, false);
  data.tell();
  EXPECT_EQ(told_last(one).size(), DataHolders::kToldMax);
  EXPECT_NE(told_last(one), told_last(two));
}

TEST_F(DataHoldersTest, ThatNobodyHasItIsSaidOnce) {
  const Seat fetches = seated(0, false, true);
  const MarkExpected nobody("data_holders.nobody");
  EXPECT_FALSE(data.may_start());
  data.tell();
  data.tell();
  const Seat holder = seated(1, true, false);
  EXPECT_TRUE(data.may_start());
  data.tell();
  EXPECT_EQ(told_last(fetches), std::set<PeerId>{holder.peer});
}

TEST_F(DataHoldersTest, HashesAreSaidABlockAtATimeAcrossFiles) {
  const Seat fetches = seated(0, false, true);
  const std::string first = block(fetches, 0), second = block(fetches, 1);
  ASSERT_EQ(first.size(), kDataHashesOfBlock * kHashDigits);
  EXPECT_EQ(first.substr(0, kHashDigits), hash_number(0));
  EXPECT_EQ(first.substr(511 * kHashDigits), hash_number(511));
  ASSERT_EQ(second.size(), 18 * kHashDigits);
  EXPECT_EQ(second.substr(0, kHashDigits), hash_number(512));
  EXPECT_EQ(second.substr(17 * kHashDigits), hash_number(529));
  const MarkExpected none("data_holders.no_such_hashes");
  EXPECT_EQ(block(fetches, 2), "refused");
  EXPECT_EQ(block(fetches, UINT32_MAX), "refused");
}

// [It was told of holders while it built its stage, and heard nothing of it.]
TEST_F(DataHoldersTest, WhoAsksForHashesIsToldOfHoldersAgain) {
  const Seat fetches = seated(0, false, true);
  seated(1, true, false);
  data.tell();
  block(fetches, 0);
  EXPECT_EQ(bench.count(fetches, MessageKind::kDataHolders), 2U);
}

TEST_F(DataHoldersTest, ARunWithoutDataHasNone) {
  DataHolders none(nullptr, bench.members, bench.outbox, bench.events);
  const Seat fetches = seated(0, false, true);
  none.tell();
  EXPECT_EQ(bench.count(fetches, MessageKind::kDataHolders), 0U);
  EXPECT_TRUE(none.may_start());
  EXPECT_FALSE(none.on_want_hashes(fetches, {}));
}

// [Only the stage that reads has one peer: it needs somebody most.]
TEST_F(DataHoldersTest, WhoFetchesLeavesTheReadingStageToThoseWhoHaveTheData) {
  const BalanceDesk balancer(bench.options.config, bench.options.model, bench.shape.stages);
  const auto place = [&] {
    wire::Hello hello;
    hello.mutable_data()->set_lacks("there is no such file");
    hello.mutable_data()->set_fetches(true);
    return balancer.place(bench.members, bench.shadows, hello, std::nullopt, bench.alarms.now());
  };
  seated(0, false, true);
  for (int i = 0; i < 3; ++i) seated(1, false, true);
  EXPECT_FALSE(bench.members.has_data_elsewhere());
  EXPECT_EQ(place(), StageId{0});
  const Seat holder = seated(1, true, false);
  EXPECT_TRUE(bench.members.has_data_elsewhere());
  EXPECT_EQ(place(), StageId{1});
  bench.lost(holder);
  EXPECT_EQ(place(), StageId{0});
  seated(0, true, false);
  EXPECT_FALSE(bench.members.has_data_elsewhere()) << "it is where it is needed";
}

}  // namespace
}  // namespace swarmline
