// A running simulated swarm, and somebody at its door who says what he likes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/net/error_reply.pb.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/protocol/protocol_version.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/pipeline/swarm_config.h"

namespace swarmline {

inline constexpr SimNodeId kAttackersNode = 50;

inline RunConfig attacked_run(std::uint32_t stages, std::uint32_t peers) {
  RunConfig config = small_run(stages, peers);
  config.model.layers = 2;
  config.model.d_model = 4;
  config.batch = {.batch = 8, .microbatch = 2, .sequence = 2};
  config.run.steps = 20;
  return config;
}

// One connection to the coordinator, or to a peer.
class Attacker {
 public:
  explicit Attacker(SimCluster& cluster, SimNodeId node = kAttackersNode)
      : Attacker(cluster, *parse_address(kCoordinatorAddress), node) {}
  Attacker(SimCluster& cluster, const Address& target, SimNodeId node = kAttackersNode)
      : cluster_(cluster) {
    cluster.network().node(node).connect(
        target, std::chrono::seconds(10), [state = state_](auto made) {
          if (!made) return;
          state->connection = *made;
          (*made)->start({.on_frame = [state](Frame f) { state->frames.push_back(std::move(f)); },
                          .on_closed = [state](Error error) { state->closed = std::move(error); }});
        });
    cluster.run_until([&] { return state_->connection != nullptr; }, std::chrono::seconds(10));
    EXPECT_NE(state_->connection, nullptr);
  }

  void send(Frame frame) { state_->connection->send(std::move(frame)); }
  template <typename Message>
  void say(MessageKind kind, const Message& message, std::vector<SharedBytes> payload = {}) {
    send(make_frame(kind, message, std::move(payload)));
  }
  // Sends a request; its answer, or kPeerGone where the connection ends instead.
  template <typename Message>
  Result<Frame> ask(MessageKind kind, const Message& message) {
    Frame frame = make_frame(kind, message);
    frame.request = ++last_request_;
    const std::size_t before = state_->frames.size();
    send(std::move(frame));
    const auto answer = [&]() -> const Frame* {
      for (std::size_t i = before; i < state_->frames.size(); ++i)
        if (state_->frames[i].request == last_request_) return &state_->frames[i];
      return nullptr;
    };
    cluster_.run_until([&] { return answer() != nullptr || state_->closed; },
                       std::chrono::seconds(10));
    if (answer() == nullptr) return fail(ErrorCode::kPeerGone, "no answer");
    if ((answer()->flags & kFrameFlagError) == 0) return *answer();
    ErrorReply reply;
    reply.ParseFromString(answer()->meta);
    return fail(static_cast<ErrorCode>(reply.code()), reply.what());
  }
  // Joins as a peer would.
  std::optional<wire::Welcome> join(wire::Hello hello = {}) {
    hello.set_protocol(kProtocolVersion);
    if (hello.name().empty()) hello.set_name("attacker");
    if (hello.address().empty()) hello.set_address("sim:59999");
    const auto reply = ask(MessageKind::kHello, hello);
    if (!reply) return std::nullopt;
    return *parse<wire::Welcome>(*reply);
  }
  const std::vector<Frame>& frames() const { return state_->frames; }
  bool was_closed() const { return state_->closed.has_value(); }

 private:
  struct State {
    std::shared_ptr<Connection> connection;
    std::vector<Frame> frames;
    std::optional<Error> closed;
  };
  SimCluster& cluster_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::uint64_t last_request_ = 0;
};

class SwarmUnderAttack : public ::testing::Test {
 protected:
  explicit SwarmUnderAttack(const RunConfig& config = attacked_run(2, 2))
      : options(swarm_of(config, make_fake_model)) {
    // Slow enough that there is time for attacks.
    for (const std::uint32_t peers : config.pipeline.peers)
      for (std::uint32_t i = 0; i < peers; ++i)
        options.peers.push_back({.forward = std::chrono::milliseconds(100),
                                 .backward = std::chrono::milliseconds(200)});
  }

  // Until it trains.
  void begin() {
    cluster_.emplace(std::move(options));
    int opened = 0;
    cluster_->network().set_tap([&](SimNodeId, SimNodeId, const Frame& frame) {
      opened += kind_of(frame) == MessageKind::kOpenPhase;
    });
    ASSERT_TRUE(cluster_->run_until([&] { return opened > 0; }, std::chrono::seconds(60)));
    cluster_->network().set_tap({});
  }
  SimCluster& cluster() { return *cluster_; }
  // The run gets to its end, and replicas have the same bits.
  void expect_ends_well() {
    const auto outcome = cluster_->run(std::chrono::seconds(2000));
    ASSERT_TRUE(outcome.has_value()) << cluster_->coordinator().status_json();
    EXPECT_EQ(outcome->exit_code, 0) << outcome->sentence;
  }

  SimClusterOptions options;

 private:
  std::optional<SimCluster> cluster_;
};

}  // namespace swarmline
