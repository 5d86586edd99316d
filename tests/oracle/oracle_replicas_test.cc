// Replicas of a stage hold the same bits at every commit, and a replica that does not is found.
#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/hash.h"
#include "pipeline/coordinator/members/membership.h"
#include "tests/oracle/model_wrapper.h"
#include "tests/oracle/oracle_case.h"
#include "tests/oracle/oracle_log.h"

namespace swarmline::oracle {
namespace {

// What each replica computed on, version after version.
struct Replica {
  StageId stage;
  std::vector<std::uint64_t> versions;
};
using Replicas = std::vector<std::unique_ptr<Replica>>;

class WatchedModel final : public ModelWrapper {
 public:
  WatchedModel(std::unique_ptr<StageModel> inner, const StageSpec& stage, Replicas* replicas)
      : ModelWrapper(std::move(inner)) {
    replicas->push_back(std::make_unique<Replica>(Replica{stage.stage, {}}));
    replica_ = replicas->back().get();
    replica_->versions.push_back(xxh3(parameters()));
  }
  void parameters_changed() override {
    ModelWrapper::parameters_changed();
    replica_->versions.push_back(xxh3(parameters()));
  }

 private:
  Replica* replica_;
};

class ReplicasAtEveryCommit
    : public ::testing::TestWithParam<std::tuple<std::uint32_t, DType, OptimizerKind>> {};

TEST_P(ReplicasAtEveryCommit, HoldTheSameBits) {
  const auto& [delay, dtype, optimizer] = GetParam();
  const RunConfig config = config_of({.stages = 2,
                                      .peers = 3,
                                      .delay = delay,
                                      .optimizer = optimizer,
                                      .tied = true,
                                      .dropout = true},
                                     dtype);
  Replicas replicas;
  SimClusterOptions options = swarm_options(config, 5);
  options.make_model = wrapped<WatchedModel>(&replicas);
  run_swarm(std::move(options));

  ASSERT_EQ(replicas.size(), 6U);
  std::map<StageId, const Replica*> first;
  for (const auto& replica : replicas) {
    const Replica& one = *first.emplace(replica->stage, replica.get()).first->second;
    EXPECT_EQ(replica->versions, one.versions);
    // All versions were seen, and they differ.
    std::vector<std::uint64_t> different = replica->versions;
    std::sort(different.begin(), different.end());
    different.erase(std::unique(different.begin(), different.end()), different.end());
    EXPECT_GE(different.size(), config.run.steps);
  }
  EXPECT_EQ(first.size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(
    All, ReplicasAtEveryCommit,
    ::testing::Combine(::testing::Values(0U, 1U), ::testing::Values(DType::kF32, DType::kF64),
                       ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kLamb)));

std::size_t commits(const SimCluster& cluster) {
  Trace trace;
  read_log(cluster.log_lines(), trace);
  return trace.losses.size();
}

class CorruptedReplica : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  // One bit of one committed parameter of a peer of stage 1 flips in memory after two commits.
  // The place of the peer whose parameters it changes.
  std::size_t corrupt(SimCluster& cluster) {
    EXPECT_TRUE(cluster.run_until([&] { return commits(cluster) == 2; }, kVirtualLimit));
    std::size_t place = 0;
    while (cluster.peer(place).seat().stage.value != 1) ++place;
    const BytesView committed = cluster.peer(place).committed_parameters();
    SWARMLINE_CHECK(!committed.empty());
    const_cast<std::byte&>(committed[2]) ^= std::byte{1};
    return place;
  }
};

// Of two that differ nobody knows which is right: the run goes back, and its replicas are equal.
TEST_P(CorruptedReplica, OfTwoTakesTheRunBack) {
  const RunConfig config = config_of({.stages = 2, .peers = 2, .delay = GetParam()}, DType::kF32);
  SimCluster cluster(swarm_options(config, 3));
  corrupt(cluster);
  const auto outcome = cluster.run(kVirtualLimit);
  ASSERT_TRUE(outcome.has_value()) << cluster.coordinator().status_json();
  EXPECT_EQ(outcome->exit_code, 0) << outcome->sentence;
  std::vector<std::string> eras;
  for (const EventRecord& event : *cluster.journal().events(1000))
    if (event.kind == "new_era") eras.push_back(event.detail);
  ASSERT_EQ(eras.size(), 1U);
  EXPECT_NE(eras[0].find("hold different parameters after step"), std::string::npos) << eras[0];
  EXPECT_NE(eras[0].find("stage 1"), std::string::npos) << eras[0];
  EXPECT_EQ(commits(cluster), config.run.steps);
  EXPECT_FALSE(cluster.parameters().empty());  // CHECKs that replicas are equal
}

// Of three the odd one is fenced before the step after, and takes the others' state.
TEST_P(CorruptedReplica, OfThreeIsFencedAndComesBackWithTheOthersState) {
  RunConfig config = config_of({.stages = 2, .peers = 3, .delay = GetParam()}, DType::kF32);
  config.run.steps = 30;
  SimCluster cluster(swarm_options(config, 3));
  const std::size_t place = corrupt(cluster);
  const Seat seat = cluster.peer(place).seat();
  const auto events = [&](const std::string& kind, const std::string& detail) {
    std::size_t count = 0;
    for (const EventRecord& event : *cluster.journal().events(1000))
      count += event.kind == kind && event.detail.find(detail) != std::string::npos;
    return count;
  };
  const auto who = [&](std::uint32_t incarnation) {
    return called(Seat{seat.peer, seat.stage, Incarnation{incarnation}},
                  "sim-" + std::to_string(place));
  };
  ASSERT_TRUE(cluster.run_until([&] { return events("peer_lost", "") > 0; }, kVirtualLimit));
  EXPECT_EQ(events("peer_lost", who(1) + ": it holds other parameters after step"), 1U);
  EXPECT_LE(commits(cluster), 5U) << "found long after it happened";
  const auto outcome = cluster.run(kVirtualLimit);
  ASSERT_TRUE(outcome.has_value()) << cluster.coordinator().status_json();
  EXPECT_EQ(outcome->exit_code, 0) << outcome->sentence;
  EXPECT_EQ(events("peer_lost", ""), 1U);
  EXPECT_EQ(events("peer_seated", who(2)), 1U);
  EXPECT_FALSE(cluster.parameters().empty());  // CHECKs that replicas are equal
}

INSTANTIATE_TEST_SUITE_P(Delays, CorruptedReplica, ::testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline::oracle
