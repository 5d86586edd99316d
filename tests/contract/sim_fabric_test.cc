// What the simulated fabric adds: time, faults, and misuse that is found.
#include "sim/doors/sim_fabric.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/hash.h"
#include "sim/doors/sim_runtime.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
using Way = FabricTransfer::Way;

// Nodes 1, 2, ... of one host, ranks 0, 1, ...; words take a millisecond.
class Host {
 public:
  explicit Host(std::uint32_t ranks, SimFabricOptions options = {}, std::uint64_t seed = 7)
      : runtime_(seed), fabrics_(runtime_, options), groups_(ranks) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      fabrics_.set_place(node(rank), {.host = "host", .card = rank});
  }
  void open(FabricKind kind = FabricKind::kNccl) {
    const auto ranks = static_cast<std::uint32_t>(groups_.size());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      groups_[rank] = nullptr;
      auto send_word = [this, rank](std::uint32_t to, Buffer word) {
        runtime_.node(node(to)).call_after(
            1ms, [this, rank, to, word = std::make_shared<const Buffer>(std::move(word))] {
              if (groups_[to]) EXPECT_TRUE(groups_[to]->on_word(rank, word->bytes()).has_value());
            });
      };
      groups_[rank] = fabrics_.node(node(rank)).open(kind, rank, ranks, send_word);
    }
  }
  void exchange(std::uint32_t rank, std::vector<FabricTransfer> transfers) {
    groups_[rank]->exchange(std::move(transfers), [this, rank](Result<void> result) {
      results_[rank] += result ? "well " : std::string(to_string(result.error().code)) + " ";
      at_[rank] = to_seconds(runtime_.now().time_since_epoch()) - 1;
    });
  }
  void send(std::uint32_t from, std::uint32_t to, std::vector<std::byte>& memory) {
    exchange(from, {{Way::kSend, to, memory.data(), memory.size()}});
  }
  void receive(std::uint32_t to, std::uint32_t from, std::vector<std::byte>& memory) {
    exchange(to, {{Way::kReceive, from, memory.data(), memory.size()}});
  }
  static SimNodeId node(std::uint32_t rank) { return rank + 1; }

  std::vector<std::byte> a_ = std::vector<std::byte>(1 << 20, std::byte{1});
  std::vector<std::byte> b_ = std::vector<std::byte>(1 << 20, std::byte{2});
  SimRuntime runtime_;
  SimFabrics fabrics_;
  std::vector<std::unique_ptr<FabricGroup>> groups_;
  std::map<std::uint32_t, std::string> results_;
  std::map<std::uint32_t, double> at_;  // seconds: of the last one
};

TEST(SimFabric, AllThatMovesOnAHostSharesItsBandwidth) {
  Host host(4, {.bytes_per_second = 1 << 20, .latency = 100ms, .setup = 1s});
  host.open();
  std::vector<std::byte> c(1 << 20), d(1 << 20);
  host.send(0, 1, host.a_);
  host.receive(1, 0, c);
  host.send(2, 3, host.b_);
  host.receive(3, 2, d);
  host.runtime_.run_for(10s);
  EXPECT_NEAR(host.at_[1], 0.001 + 1 + 1 + 0.1, 1e-6);
  EXPECT_NEAR(host.at_[3], 0.001 + 1 + 2 + 0.1, 1e-6);
  EXPECT_EQ(host.fabrics_.counters().transfers, 2U);
  EXPECT_EQ(host.fabrics_.counters().bytes, 2U << 20);
}

TEST(SimFabric, WithoutAHostThereIsNone) {
  Host host(2);
  host.fabrics_.set_place(9, {.host = "host", .nccl = false});
  EXPECT_FALSE(host.fabrics_.node(8).offers(FabricKind::kNccl));
  EXPECT_FALSE(host.fabrics_.node(9).offers(FabricKind::kNccl));
  EXPECT_TRUE(host.fabrics_.node(9).offers(FabricKind::kIpc));
  EXPECT_FALSE(host.fabrics_.node(1).offers(FabricKind::kNone));
}

TEST(SimFabric, MembersThatShareACardHaveNoCommunicator) {
  for (const FabricKind kind : {FabricKind::kNccl, FabricKind::kIpc}) {
    Host host(2);
    host.fabrics_.set_place(1, {.host = "host", .card = 1});
    host.open(kind);
    host.send(0, 1, host.a_);
    host.receive(1, 0, host.b_);
    host.runtime_.run_for(10s);
    const std::string expected = kind == FabricKind::kNccl ? "device " : "well ";
    EXPECT_EQ(host.results_[0], expected);
    EXPECT_EQ(host.results_[1], expected);
  }
}

TEST(SimFabric, AMemberOnAnotherHostIsAnError) {
  Host host(2);
  host.fabrics_.set_place(2, {.host = "elsewhere", .card = 1});
  host.open();
  host.send(0, 1, host.a_);
  host.receive(1, 0, host.b_);
  host.runtime_.run_for(100s);
  EXPECT_EQ(host.results_[1], "device ");
  EXPECT_EQ(host.results_[0], "deadline ");
}

TEST(SimFabric, AStalledGroupEndsByPatience) {
  const MarkExpected stalled("sim_fabric.stalled");
  Host host(2, {.bytes_per_second = 1 << 20});
  host.open();
  host.send(0, 1, host.a_);
  host.receive(1, 0, host.b_);
  host.runtime_.run_for(500ms);
  host.fabrics_.stall(1);
  host.runtime_.run_for(59s);
  EXPECT_EQ(host.results_[0] + host.results_[1], "");
  host.runtime_.run_for(2s);
  EXPECT_EQ(host.results_[0], "deadline ");
  EXPECT_EQ(host.results_[1], "deadline ");
  host.open();
  host.send(0, 1, host.a_);
  host.receive(1, 0, host.b_);
  host.runtime_.run_for(2s);
  EXPECT_EQ(host.results_[1], "deadline well ") << "a new group is well";
}

TEST(SimFabric, WhatAProcessThatWasKilledHadBegunDoesNotCome) {
  Host host(2, {.bytes_per_second = 1 << 20, .setup = 0ms});
  host.open();
  host.send(0, 1, host.a_);
  host.receive(1, 0, host.b_);
  host.runtime_.run_for(500ms);
  host.runtime_.kill(1);
  host.runtime_.run_for(100s);
  EXPECT_EQ(host.results_[0], "");
  EXPECT_EQ(host.results_[1], "deadline ");
  EXPECT_TRUE(std::ranges::all_of(host.b_, [](std::byte at) { return at == std::byte{0xFF}; }));
}

TEST(SimFabric, WhatAProcessThatIsFrozenHadBegunComes) {
  Host host(2, {.bytes_per_second = 1 << 20, .setup = 0ms});
  host.open();
  host.send(0, 1, host.a_);
  host.receive(1, 0, host.b_);
  host.send(0, 1, host.b_);
  host.runtime_.run_for(500ms);
  host.runtime_.freeze(1);
  host.runtime_.run_for(100s);
  EXPECT_EQ(host.results_[1], "well ");
  EXPECT_EQ(host.results_[0], "");
  EXPECT_EQ(host.a_, host.b_);
  host.runtime_.thaw(1);
  host.runtime_.run_for(1s);
  EXPECT_EQ(host.results_[0], "well ") << "what had ended is heard of before the deadline";
}

TEST(SimFabric, FaultsAreDrawnFromTheSeed) {
  const auto run = [](std::uint64_t seed) {
    Host host(2, {.stalls = 0.3, .errors = 0.1}, seed);
    host.a_.resize(1000);
    host.b_.resize(1000);
    for (int group = 0; group < 20; ++group) {
      host.open();
      for (int k = 0; k < 6; ++k) {
        host.send(0, 1, host.a_);
        host.receive(1, 0, host.b_);
      }
      host.runtime_.run_for(100s);
    }
    EXPECT_GT(host.fabrics_.counters().stalled, 0U);
    EXPECT_GT(host.fabrics_.counters().failed, 0U);
    EXPECT_NE(host.results_[0].find("well"), std::string::npos);
    return host.results_[0] + "/" + host.results_[1] + hex64(host.runtime_.trace_hash());
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

using SimFabricDeathTest = ::testing::Test;

TEST(SimFabricDeathTest, WhatIsSentMayNotBeWrittenTo) {
  Host host(2);
  host.open();
  host.send(0, 1, host.a_);
  host.receive(1, 0, host.b_);
  host.a_[77] = std::byte{9};
  EXPECT_DEATH(host.runtime_.run_for(10s), "rank 0 writes to what it sends to rank 1");
  EXPECT_DEATH(host.groups_[0].reset(), "rank 0 writes to what it sends to rank 1");
  host.a_[77] = std::byte{1};
}

TEST(SimFabricDeathTest, WhatIsReceivedIsNoNumberAndMayNotBeWrittenTo) {
  Host host(2);
  host.open();
  host.receive(1, 0, host.b_);
  EXPECT_TRUE(std::ranges::all_of(host.b_, [](std::byte at) { return at == std::byte{0xFF}; }));
  host.send(0, 1, host.a_);
  host.b_[77] = std::byte{9};
  EXPECT_DEATH(host.runtime_.run_for(10s), "rank 1 writes to what it receives from rank 0");
  host.b_[77] = std::byte{0xFF};
}

TEST(SimFabricDeathTest, EndsMeanTheSameTransfers) {
  const auto with = [](std::vector<FabricTransfer> sends, std::vector<FabricTransfer> receives) {
    Host host(2);
    host.open();
    host.exchange(0, std::move(sends));
    host.exchange(1, std::move(receives));
    host.runtime_.run_for(10s);
  };
  std::vector<std::byte> a(100), b(100);
  const std::string sentence = "exchange 1: rank [01] sends [012] transfers to rank";
  const FabricTransfer to{Way::kSend, 1, a.data(), 100}, from{Way::kReceive, 0, b.data(), 100};
  EXPECT_DEATH(with({to}, {{Way::kReceive, 0, b.data(), 99}}), sentence);
  EXPECT_DEATH(with({to}, {{Way::kSend, 0, b.data(), 100}}), sentence);
  EXPECT_DEATH(with({to, to}, {from}), sentence);
  with({to}, {from});
}

TEST(SimFabricDeathTest, ATurnThatTheOtherHasHadWithoutItIsFound) {
  Host host(2);
  host.open();
  host.exchange(1, {});
  host.receive(1, 0, host.b_);
  host.send(0, 1, host.a_);
  EXPECT_DEATH(host.runtime_.run_for(10s), "exchange 1: rank 0 sends 1 transfers to rank 1");
}

TEST(SimFabricDeathTest, MemoryIsNamedOnceWhereItIsReceived) {
  Host host(2);
  host.open();
  std::vector<std::byte>& a = host.a_;
  EXPECT_DEATH(
      host.exchange(0, {{Way::kSend, 1, a.data(), 100}, {Way::kReceive, 1, a.data() + 99, 100}}),
      "names twice");
  EXPECT_DEATH(host.exchange(0, {{Way::kSend, 0, a.data(), 100}}), "names rank 0");
  EXPECT_DEATH(host.exchange(0, {{Way::kSend, 1, a.data(), 0}}), "names no memory");
}

}  // namespace
}  // namespace swarmline
