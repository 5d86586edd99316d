// Runs that lose a stage, are interrupted, or are killed whole: they go on from their newest
// checkpoint and end as the reference does.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

class SwarmEras : public testing::Test {
 protected:
  explicit SwarmEras(std::uint32_t delay = 0, const std::string& schedule = "cosine",
                     const std::string& optimizer = "adamw")
      : swarm_({"run.steps=40", "pipeline.peers=2", "model.dtype=fp64", "checkpoint.every_steps=5",
                "pipeline.delay=" + std::to_string(delay), "optimizer.kind=" + optimizer,
                "optimizer.schedule=" + schedule, "log.level=warn"}) {
    adopt_orphans();
  }
  ~SwarmEras() override { expect_nothing_left(); }

  Program launch() const { return swarm_.start("launch", swarm_.emulating(3, 6)); }

  // Ctrl-C in mid-run: it writes a checkpoint and ends well.
  void interrupt() const {
    Program first = launch();
    ASSERT_TRUE(swarm_.wait_for_step(12));
    first.signal(SIGINT);
    EXPECT_EQ(first.wait(), 0) << first.output();
  }
  std::size_t events(const std::string& kind, const std::string& part) const {
    std::size_t count = 0;
    for (const JsonValue& line : swarm_.log(kind))
      count += line["detail"].string.find(part) != std::string::npos;
    return count;
  }

  SwarmFolder swarm_;
};

class SwarmErasDelayed : public SwarmEras {
 protected:
  SwarmErasDelayed() : SwarmEras(1) {}
};

TEST_F(SwarmErasDelayed, BothPeersOfAStageAreKilled) {
  Program run = launch();
  const auto status = swarm_.wait_for_step(12);
  ASSERT_TRUE(status);
  for (const PeerStatus& peer : status->stages.at(1).peers)
    ::kill(process_with(run.pid(), "--name " + peer.name), SIGKILL);
  EXPECT_EQ(run.wait(), 0) << run.output() << swarm_.logs();
  EXPECT_NE(run.output().find("era 1 begins with version "), std::string::npos) << run.output();
  EXPECT_EQ(events("new_era", "checkpoints/step-"), 1U);
  expect_reference(swarm_);
}

TEST_F(SwarmEras, AnInterruptedRunGoesOnWhenItIsStartedAgain) {
  ASSERT_NO_FATAL_FAILURE(interrupt());
  const auto drained = swarm_.status();
  ASSERT_TRUE(drained);
  ASSERT_LT(drained->step, 40U);
  Program second = launch();
  EXPECT_EQ(second.wait(), 0) << second.output() << swarm_.logs();
  EXPECT_NE(second.output().find("holds this run already"), std::string::npos);
  EXPECT_EQ(events("new_era", "begins with version " + std::to_string(drained->step) + " "), 1U);
  EXPECT_EQ(swarm_.log("step").size(), 40U) << "no step was computed twice";
  expect_reference(swarm_);
  const Ended third = swarm_.launch();
  EXPECT_EQ(third.code, 0);
  EXPECT_NE(third.output.find("has finished its 40 steps"), std::string::npos) << third.output;
}

// And the newest checkpoint is damaged: the one before is taken, with a warning.
TEST_F(SwarmErasDelayed, AKilledRunGoesOnFromItsNewestWholeCheckpoint) {
  {
    Program first = launch();
    ASSERT_TRUE(swarm_.wait_for_step(17));
    first.signal(SIGKILL);
    EXPECT_EQ(first.wait(), 128 + SIGKILL);
    expect_nothing_left();
  }
  std::filesystem::remove_all(swarm_.run().checkpoints() + "/step-20");
  {
    std::fstream file(swarm_.run().checkpoints() + "/step-15/stage-1.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.is_open());
    file.seekp(-3, std::ios::end);
    file.put('!');
  }
  Program second = launch();
  EXPECT_EQ(second.wait(), 0) << second.output() << swarm_.logs();
  EXPECT_EQ(events("new_era", "begins with version 10 "), 1U);
  EXPECT_NE(swarm_.logs().find("step-15/stage-1.safetensors is damaged"), std::string::npos);
  expect_reference(swarm_);
}

// The numbers of peers and of stages are the machines', not the run's.
TEST_F(SwarmEras, ARunGoesOnWithOtherStagesAndPeers) {
  ASSERT_NO_FATAL_FAILURE(interrupt());
  const Ended second = swarm_.launch({"--set", "pipeline.stages=3", "--set", "pipeline.peers=1"});
  EXPECT_EQ(second.code, 0) << second.output << swarm_.logs();
  expect_reference(swarm_);
  const Ended other = swarm_.launch({"--set", "optimizer.beta1=0.8"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.output.find("optimizer.beta1: found 0.8, but the run began with 0.9"),
            std::string::npos)
      << other.output;
}

class SwarmErasMuon : public SwarmEras {
 protected:
  SwarmErasMuon() : SwarmEras(1, "constant", "muon") {}
};

// Muon's matrices have one moment, everything else two.
TEST_F(SwarmErasMuon, ARunGoesOnUnderOtherCuts) {
  for (const auto& [stages, steps] : {std::pair{"1", "8"}, std::pair{"4", "20"}, {"2", "40"}}) {
    const Ended part = swarm_.launch({"--set", "pipeline.peers=1", "--set",
                                      std::string("pipeline.stages=") + stages, "--set",
                                      std::string("run.steps=") + steps});
    ASSERT_EQ(part.code, 0) << part.output << swarm_.logs();
  }
  EXPECT_EQ(events("new_era", "begins with version "), 2U);
  expect_reference(swarm_);
}

}  // namespace
}  // namespace swarmline
