// Replicas of a stage hold the same bits at every commit, and a replica that does not is found.
#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/hash.h"
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

class CorruptedReplica : public ::testing::TestWithParam<std::uint32_t> {};

// One bit of one committed parameter of one of six peers flips in memory.
TEST_P(CorruptedReplica, EndsTheRunWithASentence) {
  const RunConfig config = config_of({.stages = 2, .peers = 3, .delay = GetParam()}, DType::kF32);
  SimCluster cluster(swarm_options(config, 3));
  ASSERT_TRUE(cluster.run_until([&] { return commits(cluster) == 2; }, kVirtualLimit));
  StagePeer& peer = cluster.peer(4);
  const BytesView committed = peer.committed_parameters();
  ASSERT_FALSE(committed.empty());
  const_cast<std::byte&>(committed[2]) ^= std::byte{1};

  const auto outcome = cluster.run(kVirtualLimit);
  ASSERT_TRUE(outcome.has_value()) << cluster.coordinator().status_json();
  EXPECT_EQ(outcome->exit_code, 1);
  EXPECT_NE(outcome->sentence.find("hold different parameters after step"), std::string::npos)
      << outcome->sentence;
  EXPECT_NE(outcome->sentence.find("stage " + std::to_string(peer.seat().stage.value)),
            std::string::npos)
      << outcome->sentence;
  EXPECT_LT(commits(cluster), config.run.steps) << "found long after it happened";
}

INSTANTIATE_TEST_SUITE_P(Delays, CorruptedReplica, ::testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline::oracle
