// A coordinator started by hand, and peers that join it, or may not.
#include <algorithm>
#include <chrono>
#include <csignal>

#include <gtest/gtest.h>

#include "engine/net/rpc.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "pipeline/protocol/data_messages.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/protocol/protocol_version.h"
#include "tests/net/own_port.h"
#include "tests/swarm/keyed_swarm.h"

namespace swarmline {
namespace {

// Takes a seat and is never ready, so that the run can't start.
class SeatTaker {
 public:
  explicit SeatTaker(const Address& coordinator) : network_(runtime_, {}) {
    network_.connect(coordinator, std::chrono::seconds(10),
                     [this](Result<std::shared_ptr<Connection>> connected) {
                       ASSERT_TRUE(connected.has_value()) << connected.error().what;
                       channel_ = RpcChannel::make(runtime_, std::move(*connected));
                       channel_->start({.on_message = [](Frame) {},
                                        .on_request = [](Frame, RpcChannel::Respond) {},
                                        .on_closed = [](Error) {}});
                       say_hello();
                     });
    runtime_.run_until([this] { return seated_; }, std::chrono::seconds(30));
    EXPECT_TRUE(seated_);
  }
  ~SeatTaker() {
    if (channel_) channel_->close();
  }

 private:
  void say_hello() {
    wire::Hello hello;
    hello.set_protocol(kProtocolVersion);
    hello.set_name("never ready");
    hello.set_address("127.0.0.1:1");
    hello.mutable_data()->set_fingerprint(fingerprint_);
    channel_->call(make_frame(MessageKind::kHello, hello), std::chrono::seconds(10),
                   [this](Result<Frame> reply) {
                     ASSERT_TRUE(reply.has_value()) << reply.error().what;
                     if (kind_of(*reply) == MessageKind::kDataWanted) return has_all(*reply);
                     seated_ = true;
                   });
  }
  void has_all(const Frame& wanted) {
    const auto manifest = from_wire(*parse<wire::DataWanted>(wanted));
    ASSERT_TRUE(manifest) << manifest.error().what;
    fingerprint_ = manifest->fingerprint();
    say_hello();
  }

  AsioRuntime runtime_;
  TcpNetwork network_;
  std::shared_ptr<RpcChannel> channel_;
  std::string fingerprint_;
  bool seated_ = false;
};

// The address that a coordinator started by hand has written.
std::string address_of(const SwarmFolder& swarm, Program& coordinator) {
  if (!coordinator.wait_for_output("swarmline peer --join")) return "127.0.0.1:1";
  const auto address = swarm.run().read_address();
  EXPECT_TRUE(address.has_value());
  return address ? to_string(*address) : "127.0.0.1:1";
}

TEST(SwarmJoining, PeersJoinACoordinatorStartedByHand) {
  const SwarmFolder swarm({});
  Program coordinator = swarm.start("coordinator");
  const std::string address = address_of(swarm, coordinator);
  Program first(swarm.temp(), "first",
                {"peer", "--data-root", "/", "--join", address, "--name", "first"});
  Program second(swarm.temp(), "second",
                 {"peer", "--data-root", "/", "--join", address, "--name", "second"});
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  const auto status = swarm.status();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, "done");
  EXPECT_EQ(status->step, 6U);
}

// The config says how many peers a run starts with at least; whoever comes before the start helps.
TEST(SwarmJoining, OneMoreThanAskedForHelpsIfItComesBeforeTheStart) {
  const SwarmFolder swarm({"pipeline.stages=1", "net.peer_silence_seconds=600"});
  Program coordinator = swarm.start("coordinator");
  const std::string address = address_of(swarm, coordinator);
  std::optional<SeatTaker> taker(*parse_address(address));
  Program more(swarm.temp(), "more",
               {"peer", "--data-root", "/", "--join", address, "--name", "more"});
  ASSERT_TRUE(more.wait_for_output("seated at stage 0"));
  const auto status = swarm.status();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, "waiting");
  EXPECT_EQ(status->peers(), 2U);

  taker.reset();  // its seat is free again, and nobody else is waited for
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  EXPECT_EQ(more.wait(), 0) << more.output();
}

// It fetches the state while the first goes on, serves, and on SIGTERM hands in what it holds; so
// does the first, once another has taken its place.
TEST(SwarmJoining, AfterTheStartItServesAndMayLeave) {
  const SwarmFolder swarm({"run.steps=1000000", "pipeline.stages=1"});
  Program coordinator = swarm.start("coordinator");
  const std::string address = address_of(swarm, coordinator);
  const auto join = [&](const std::string& name) {
    return Program(swarm.temp(), name,
                   {"peer", "--data-root", "/", "--join", address, "--name", name,
                    "--emulate-forward-ms", "5", "--emulate-backward-ms", "5"});
  };
  const auto serves = [&](const std::string& name) {
    return comes_true([&] {
      const auto status = swarm.status();
      return status && std::ranges::any_of(status->stages.at(0).peers, [&](const auto& peer) {
               return peer.name == name && peer.state == "ready" && peer.microbatches > 0;
             });
    });
  };
  Program first = join("first");
  ASSERT_TRUE(swarm.wait_for_step(1));
  Program late = join("late");
  ASSERT_TRUE(serves("late")) << late.output() << swarm.logs();
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait(), 0) << first.output();
  const auto status = swarm.status();
  ASSERT_TRUE(status);
  EXPECT_TRUE(swarm.wait_for_step(status->step + 3));
  // The run did not mind; SIGTERM drains it.
  coordinator.signal(SIGTERM);
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  EXPECT_EQ(late.wait(), 0) << late.output();
  EXPECT_FALSE(swarm.log("checkpoint").empty());
}

// The first stage is served by a peer with an empty folder; one that has the data comes last.
void expect_data_to_be_fetched(std::vector<std::string> settings, bool has_keys) {
  const TempFolder corpus;
  std::string text;
  for (std::uint32_t state = 1; text.size() < 5'500'000;) {
    state = state * 1664525 + 1013904223;
    text += "a line of peer " + std::to_string(state >> 28) + "\n";
  }
  const std::string file = corpus.write("text.txt", text);
  settings.insert(settings.end(),
                  {"model.dtype=\"fp64\"", "data.files=[\"" + file + "\"]", "data.held_out=0.001"});
  const SwarmFolder swarm(settings);
  ASSERT_TRUE(make_folders(corpus.at("empty")));
  const auto fetching = [&](const std::string& address, const std::string& name) {
    return Program(swarm.temp(), name,
                   {"peer", "--data", corpus.at("empty"), "--join", address, "--name", name,
                    "--fetch-data=" + corpus.at("pieces"), "--fetch-data-cache", "16"});
  };
  Program coordinator = swarm.start("coordinator");
  const std::string address = has_keys ? printed_join(coordinator) : address_of(swarm, coordinator);
  Program elsewhere = fetching(address, "elsewhere");  // nothing is read there
  ASSERT_TRUE(elsewhere.wait_for_output("seated at stage 1"));
  Program reads = fetching(address, "reads");
  ASSERT_TRUE(reads.wait_for_output("seated at stage 0"));
  ASSERT_TRUE(coordinator.wait_for_output("nobody in the run has its data"));
  Program has(swarm.temp(), "has",
              {"peer", "--data-root", "/", "--join", address, "--name", "has"});
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  EXPECT_EQ(reads.wait(), 0) << reads.output();
  EXPECT_EQ(elsewhere.wait(), 0) << elsewhere.output();
  EXPECT_EQ(has.wait(), 0) << has.output();
  EXPECT_NE(reads.output().find("fetches its data from peer"), std::string::npos) << reads.output();
  EXPECT_FALSE(list_folder(corpus.at("pieces"))->empty());
  EXPECT_TRUE(file_exists(swarm.run().data()));
  expect_reference(swarm);
}

TEST(SwarmJoining, WhoLacksTheDataFetchesItAndTheRunEndsAsTheReference) {
  expect_data_to_be_fetched({}, false);
}

TEST(SwarmJoining, WhoLacksTheDataFetchesItOverLinksBetweenKeysToo) {
  expect_data_to_be_fetched(kKeyed, true);
}

// As when machines are started all at once.
TEST(SwarmJoining, APeerMayBeStartedBeforeItsCoordinator) {
  const std::string address = free_address();
  const SwarmFolder swarm({"run.steps=2", "pipeline.stages=1", "net.listen=\"" + address + "\""});
  Program peer(swarm.temp(), "peer", {"peer", "--data-root", "/", "--join", address});
  ASSERT_TRUE(peer.wait_for_output("no coordinator answers at " + address));
  Program coordinator = swarm.start("coordinator");
  EXPECT_EQ(coordinator.wait(), 0) << coordinator.output();
  EXPECT_EQ(peer.wait(), 0) << peer.output();
}

TEST(SwarmJoining, NobodyAtThatPortIsSaidInASentence) {
  const TempFolder folder;
  const OwnPort nobody(OwnPort::Use::kSilent);
  const Ended ended =
      run_program(folder, "peer",
                  {"peer", "--data-root", "/", "--join", nobody.address(), "--join-patience", "1"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.output.find("no coordinator answers at " + nobody.address()), std::string::npos)
      << ended.output;
}

TEST(SwarmJoining, ATakenPortIsTheUsersMistake) {
  const OwnPort taken(OwnPort::Use::kListening);
  const SwarmFolder swarm({"net.listen=\"" + taken.address() + "\""});
  const Ended alone = swarm.launch();
  EXPECT_EQ(alone.code, 2) << alone.output;
  EXPECT_NE(alone.output.find(taken.address()), std::string::npos) << alone.output;
  EXPECT_NE(alone.output.find("--listen HOST:PORT"), std::string::npos) << alone.output;

  const SwarmFolder by_hand({"net.listen=\"" + taken.address() + "\""});
  Program coordinator = by_hand.start("coordinator");
  EXPECT_EQ(coordinator.wait(), 2);
  EXPECT_NE(coordinator.output().find("--listen HOST:PORT"), std::string::npos)
      << coordinator.output();

  const Ended bench =
      run_program(by_hand.temp(), "bench", {"bench", "links", "--listen", taken.address()});
  EXPECT_EQ(bench.code, 2) << bench.output;
  EXPECT_NE(bench.output.find("cannot listen on " + taken.address()), std::string::npos);
  EXPECT_NE(bench.output.find("--listen HOST:PORT"), std::string::npos) << bench.output;

  const SwarmFolder led_later({"net.listen=\"" + taken.address() + "\""});
  Program standby(led_later.temp(), "standby", led_later.arguments("coordinator", {"--standby"}));
  EXPECT_TRUE(standby.wait_for_output("this standby cannot listen on " + taken.address()));
  EXPECT_EQ(standby.wait(), 2) << standby.output();  // nobody leads: it is its turn at once
}

}  // namespace
}  // namespace swarmline
