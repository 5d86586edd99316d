// A swarm whose peers reach each other through shaped links.
#include <csignal>
#include <optional>

#include <gtest/gtest.h>

#include "tests/net/own_port.h"
#include "tests/swarm/swarm_process.h"

namespace swarmline {
namespace {

// The word that follows `text` in what a program wrote.
std::string word_after(const std::string& output, const std::string& text) {
  const std::size_t begin = output.find(text) + text.size();
  return output.substr(begin, output.find_first_of(", \n", begin) - begin);
}

// A peer that others reach through a link of its own.
class PeerBehindLink {
 public:
  PeerBehindLink(const SwarmFolder& swarm, const std::string& name, const std::string& coordinator)
      : listen_(free_address()),
        link_(swarm.temp(), name + "-link",
              {"link-proxy", "--to", listen_, "--both", "delay=20ms", "--forward", "rate=40M"}) {
    EXPECT_TRUE(link_.wait_for_output("link: "));
    peer_.emplace(
        swarm.temp(), name,
        std::vector<std::string>{"peer", "--data-root", "/", "--join", coordinator, "--listen",
                                 listen_, "--advertise", word_after(link_.output(), "link: ")});
  }
  void expect_done() {
    EXPECT_EQ(peer_->wait(), 0) << peer_->output();
    link_.signal(SIGTERM);
    EXPECT_EQ(link_.wait(), 0) << link_.output();
  }
  std::uint64_t bytes_forward() const {
    return std::stoull(word_after(link_.output(), "connections; "));
  }

 private:
  std::string listen_;
  Program link_;
  std::optional<Program> peer_;
};

TEST(SwarmLinks, ADelayedSwarmMakesTheModelOfOneProcess) {
  const SwarmFolder swarm({"run.steps=3", "model.dtype=fp64", "model.bias=false"});
  Program coordinator = swarm.start("coordinator");
  ASSERT_TRUE(coordinator.wait_for_output("swarmline peer --join"));
  const std::string address = to_string(*swarm.run().read_address());
  PeerBehindLink first(swarm, "first", address);
  PeerBehindLink second(swarm, "second", address);
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  first.expect_done();
  second.expect_done();
  // Activations of 3 steps x 4 microbatches x 2 sequences x 32 tokens x 32 features in fp64.
  EXPECT_GT(first.bytes_forward() + second.bytes_forward(), 3U * 4 * 2 * 32 * 32 * 8);
  expect_reference(swarm);
}

TEST(SwarmLinks, ABadShapeIsTheUsersMistake) {
  const TempFolder folder;
  const Ended ended =
      run_program(folder, "link", {"link-proxy", "--to", "127.0.0.1:1", "--forward", "rate=quick"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.output.find("--forward \"rate=quick\": expected rate=100M"), std::string::npos)
      << ended.output;
}

}  // namespace
}  // namespace swarmline
