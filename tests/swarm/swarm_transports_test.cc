// Swarms whose payloads go another way than their frames: the same model, whichever way that is.
#include <csignal>
#include <optional>

#include <gtest/gtest.h>

#include "engine/net/ucx/ucx_backend.h"
#include "tests/net/own_port.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

// Activations of 2 x 128 tokens x 64 features in fp64 are 128 KiB: large enough for another way.
std::vector<std::string> with_large_payloads(std::vector<std::string> more) {
  std::vector<std::string> all = {
      "model.d_model=64", "batch.sequence=128",    "model.dtype=fp64",   "model.bias=false",
      "run.steps=4",      "pipeline.peers=[2, 2]", "log.level=\"debug\""};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

void expect_links(const SwarmFolder& swarm, const std::string& way) {
  // Each of two peers to each of the other stage's, and to its mate; both ends say so.
  EXPECT_GE(times(swarm.logs(), " go over " + way), 8U);
  EXPECT_EQ(times(swarm.logs(), " link to "), 0U) << "one broke";
}

void expect_the_model_of_one_process(const std::vector<std::string>& transport,
                                     const std::string& way) {
  const SwarmFolder swarm(with_large_payloads(transport));
  const Ended ended = swarm.launch();
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();
  expect_links(swarm, way);
  expect_reference(swarm);
}

TEST(SwarmTransports, SharedMemoryMakesTheModelOfOneProcess) {
  expect_the_model_of_one_process({"net.transport=shm"}, "shm");
}

// Which of the two is faster is this machine's business.
TEST(SwarmTransports, AutoTakesSharedMemoryWithinOneMachineUnlessItIsMeasuredToBeSlower) {
  const SwarmFolder swarm(with_large_payloads({"net.transport=auto"}));
  const Ended ended = swarm.launch();
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();
  const std::string logs = swarm.logs();
  EXPECT_GE(times(logs, " go over shm") + times(logs, " stay with their frames"), 8U) << logs;
  EXPECT_GE(times(logs, " MiB/s"), 4U) << "each peer measures";
  EXPECT_EQ(times(logs, " link to "), 0U) << "one broke";
  expect_reference(swarm);
}

TEST(SwarmTransports, SharedMemoryBesideLinksBetweenKeysMakesTheModelOfOneProcess) {
  expect_the_model_of_one_process({"net.transport=shm", "security.loopback=true"}, "shm");
}

TEST(SwarmTransports, UcxMakesTheModelOfOneProcess) {
  if (const auto found = UcxBackend::find_library(); !found) GTEST_SKIP() << found.error().what;
  expect_the_model_of_one_process(
      {"net.transport=ucx", "security.trusted_networks=[\"127.0.0.0/8\"]"}, "ucx");
}

// Networks that are trusted are elsewhere: payloads stay on authenticated links.
TEST(SwarmTransports, UcxIsNotTakenWhereNobodySaidThatItMay) {
  const SwarmFolder swarm(
      with_large_payloads({"net.transport=ucx", "security.trusted_networks=[\"10.0.0.0/8\"]"}));
  const Ended ended = swarm.launch();
  ASSERT_EQ(ended.code, 0) << ended.output << swarm.logs();
  EXPECT_EQ(times(swarm.logs(), " go over "), 0U);
  expect_reference(swarm);
}

TEST(SwarmTransports, SeveralConnectionsBetweenKeysMakeTheModelOfOneProcess) {
  expect_the_model_of_one_process(
      {"net.transport=streams", "net.streams=3", "security.loopback=true"}, "streams");
}

class SwarmTransportsKilled : public ::testing::TestWithParam<const char*> {};

TEST_P(SwarmTransportsKilled, APeersLinksEndWithItAndTheRunGoesOn) {
  const SwarmFolder swarm(with_large_payloads({std::string("net.transport=") + GetParam(),
                                               "run.steps=1000", "optimizer.schedule=constant",
                                               "checkpoint.every_steps=1", "checkpoint.keep=2"}));
  Program launch = swarm.start("launch", SwarmFolder::without_restarts({}));
  ASSERT_TRUE(swarm.wait_for_step(2)) << swarm.logs();
  const auto before = swarm.status();
  ASSERT_TRUE(before);
  const pid_t victim =
      process_with(launch.pid(), "--name " + before->stages.at(1).peers.at(0).name);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  ASSERT_TRUE(swarm.wait_for_step(before->step + 5)) << swarm.logs();
  launch.signal(SIGINT);
  EXPECT_EQ(launch.wait(), 0) << launch.output() << swarm.logs();
  expect_reference_as_far_as_it_got(swarm);
}

INSTANTIATE_TEST_SUITE_P(Ways, SwarmTransportsKilled, ::testing::Values("shm", "streams"),
                         [](const auto& tested) { return std::string(tested.param); });

// Both peers are reached through programs that stand between. `way`: that payloads take all the
// same; empty: with their frames.
void run_with_proxies(const std::string& transport, const std::string& way) {
  const SwarmFolder swarm(
      with_large_payloads({"net.transport=" + transport, "pipeline.peers=[1, 1]"}));
  Program coordinator = swarm.start("coordinator");
  ASSERT_TRUE(coordinator.wait_for_output("swarmline peer --join"));
  const std::string address = to_string(*swarm.run().read_address());
  const std::string listens[] = {free_address(), free_address()};
  std::vector<std::unique_ptr<Program>> proxies, peers;
  for (const std::string& listen : listens) {
    proxies.push_back(
        std::make_unique<Program>(swarm.temp(), "link-" + std::to_string(proxies.size()),
                                  std::vector<std::string>{"link-proxy", "--to", listen}));
    ASSERT_TRUE(proxies.back()->wait_for_output("link: "));
    const std::string said = proxies.back()->output();
    const std::size_t at = said.find("link: ") + 6;
    peers.push_back(std::make_unique<Program>(
        swarm.temp(), "peer-" + std::to_string(peers.size()),
        std::vector<std::string>{"peer", "--log-level", "debug", "--data-root", "/", "--join",
                                 address, "--listen", listen, "--advertise",
                                 said.substr(at, said.find_first_of(", \n", at) - at)}));
  }
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  for (const auto& peer : peers) {
    EXPECT_EQ(peer->wait(), 0) << peer->output();
    EXPECT_EQ(times(peer->output(), " go over "), way.empty() ? 0U : 1U);
    EXPECT_EQ(times(peer->output(), " go over " + way), way.empty() ? 0U : 1U);
  }
  for (const auto& proxy : proxies) proxy->signal(SIGTERM);
  for (const auto& proxy : proxies) EXPECT_EQ(proxy->wait(), 0);
  expect_reference(swarm);
}

// Who stands between sees all that passes, whatever the two ends could do without it.
TEST(SwarmTransports, NothingGoesPastWhoStandsBetween) {
  run_with_proxies("shm", "");
}

TEST(SwarmTransports, SeveralConnectionsGoWhereOneGoes) {
  run_with_proxies("streams", "streams");
}

}  // namespace
}  // namespace swarmline
