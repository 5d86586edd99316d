#include "tests/pipeline/hostile_islands.h"

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/resident_model.h"
#include "sim/cluster/synthetic_source.h"
#include "tests/pipeline/swarm_config.h"
#include "tests/pipeline/wayward_coordinator.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr SimNodeId kHostileNode = 50;
constexpr int kFramesMax = 64;
constexpr std::size_t kHeardMax = 16;  // frames of members
constexpr std::uint32_t kVocab = 31;
constexpr std::uint32_t kMembers = 4;

const std::vector<MessageKind> kFromMates = kinds_that_go(
    kBetweenPeers, {MessageKind::kFabricWord, MessageKind::kFabricWord, MessageKind::kReduceChunk});

using Hosts = std::array<const char*, kMembers>;
constexpr std::array<Hosts, 4> kHosts = {
    Hosts{"one", "one", "one", "one"}, Hosts{"left", "right", "left", "right"},
    Hosts{"left", "left", "left", ""}, Hosts{"left", "left", "right", "right"}};

RunConfig run_of(FuzzInput& input, std::vector<std::uint32_t> peers) {
  RunConfig config = small_run(std::move(peers), static_cast<std::uint32_t>(input.below(2)));
  config.model.layers = 2;
  config.model.d_model = 4;
  config.model.tied_embeddings = input.below(4) == 1;
  config.batch = {.batch = 8, .microbatch = 2, .sequence = 2};
  config.run.steps = 3;
  config.wiring.hop_timeout_seconds = 0.2;
  config.net.heartbeat_seconds = 5;
  config.net.peer_silence_seconds = 30;
  config.net.coordinator_patience_seconds = 3;
  constexpr std::array<const char*, 4> kCodecs = {"none", "none", "fp16", "lin8"};
  const std::uint64_t codec = input.below(2 * kCodecs.size());
  config.codec.averaging = kCodecs[codec % kCodecs.size()];
  // Without islands each member encodes what it has on its device.
  config.net.islands = codec < kCodecs.size() ? Islands::kHost : Islands::kNone;
  config.codec.error_feedback = config.codec.averaging != "none" && input.below(2) == 1;
  return config;
}

MakeModel make_model(FuzzInput& input) {
  if (input.below(8) != 7) return make_resident_model;
  return [](const ModelSpec& spec, const StageSpec& stage,
            const StageModelOptions&) -> Result<std::unique_ptr<StageModel>> {
    auto bus = std::make_shared<DeviceBus>();
    bus->room_for_islands = false;
    return on_a_device(std::make_unique<FakeStageModel>(spec, stage), std::nullopt, std::move(bus));
  };
}

// A word that its fabric may still wait for, or waits for no more.
Frame altered(FuzzInput& input, Frame frame) {
  if (kind_of(frame) != MessageKind::kFabricWord) return frame;
  auto word = parse<wire::FabricWord>(frame);
  SWARMLINE_CHECK(word);
  switch (input.below(6)) {
    case 0:
      word->set_meeting(word->meeting() + 1);
      break;
    case 1:
      word->set_meeting(word->meeting() - 1);
      break;
    case 2:
      word->set_sum_is_here(!word->sum_is_here());
      break;
    case 3:
      word->set_group(static_cast<std::uint32_t>(input.number()));
      break;
    case 4:
      word->mutable_phase()->set_step(input.number());
      break;
    default:
      break;
  }
  frame.meta = word->SerializeAsString();
  if (input.below(4) == 1)
    frame.payload = {SharedBytes(Buffer::copy_of(as_bytes(input.text(input.below(40)))))};
  return frame;
}

class HostileMates {
 public:
  explicit HostileMates(FuzzInput& input)
      : input_(input),
        cluster_(options_of(input)),
        frames_{.input = input,
                .seats = {},
                .activation_elements = 2 * 2 * 4,
                .activation_targets_bytes = 2 * 2 * 2} {}

  void run() {
    int opened = 0;
    cluster_.network().set_tap([&](SimNodeId from, SimNodeId, const Frame& frame) {
      opened += kind_of(frame) == MessageKind::kOpenPhase;
      const bool of_a_round =
          kind_of(frame) == MessageKind::kFabricWord || kind_of(frame) == MessageKind::kReduceChunk;
      if (!of_a_round || from == kHostileNode) return;
      heard_.push_back(frame);
      if (heard_.size() > kHeardMax) heard_.pop_front();
    });
    const auto peers = static_cast<int>(cluster_.peers());
    cluster_.run_until([&] { return opened == peers; }, 60s);
    for (std::size_t i = 0; i < cluster_.peers(); ++i) seats_.push_back(cluster_.peer(i).seat());
    frames_.seats = seats_;
    for (int i = 0; i < kFramesMax && !input_.empty() && !cluster_.outcome(); ++i) act();
    cluster_.run(320s);
  }

 private:
  static SimClusterOptions options_of(FuzzInput& input) {
    SimClusterOptions options = swarm_of(run_of(input, {1, kMembers}), make_model(input));
    const Hosts& hosts = kHosts[input.below(kHosts.size())];
    const bool one_card = input.below(4) == 3;
    options.peers = {SimPeer{}};
    for (std::uint32_t i = 0; i < kMembers; ++i) {
      SimPeer& peer = options.peers.emplace_back();
      peer.host = hosts[i];
      if (!peer.host.empty()) peer.gpu = {.host = peer.host, .card = one_card ? 0 : i};
    }
    options.fabric.setup = 1ms;
    options.fabric.patience = 500ms;
    return options;
  }

  void act() {
    cluster_.runtime().run_for(std::chrono::milliseconds(input_.below(64)));
    const std::size_t victim = input_.below(cluster_.peers());
    const std::uint64_t what = input_.below(16);
    if (what == 0) return harm(victim);
    const std::size_t link = link_to(victim);
    if (!links_[link]) return;
    if (what < 8 && !heard_.empty())
      links_[link]->send(altered(input_, heard_[input_.below(heard_.size())]));
    else
      links_[link]->send(frames_.next(kFromMates));
  }

  void harm(std::size_t victim) {
    const SimNodeId node = SimCluster::node_of_peer(victim);
    switch (input_.below(4)) {
      case 0:
        return cluster_.network().kill(node);
      case 1:
        return cluster_.fabrics().stall(node);
      case 2:
        return cluster_.fabrics().break_exchange(node);
      default:
        return cluster_.network().cut(node,
                                      SimCluster::node_of_peer(input_.below(cluster_.peers())));
    }
  }

  // Under the name of whoever the input says.
  std::size_t link_to(std::size_t victim) {
    const std::size_t name = input_.below(seats_.size());
    const std::size_t link = victim * seats_.size() + name;
    if (links_[link]) return link;
    const auto port = static_cast<std::uint16_t>(SimCluster::node_of_peer(victim));
    cluster_.network()
        .node(kHostileNode)
        .connect({"sim", port}, 1s, [=, this](Result<std::shared_ptr<Connection>> made) {
          if (!made) return;
          links_[link] = *made;
          (*made)->start({.on_frame = [](Frame) {},
                          .on_closed = [this, link](Error) { links_[link].reset(); }});
          wire::LinkHello hello;
          hello.set_term(1);
          hello.set_run_id("simulated");
          *hello.mutable_from() = to_wire(seats_[name]);
          *hello.mutable_to() = to_wire(seats_[victim]);
          (*made)->send(make_frame(MessageKind::kLinkHello, hello));
        });
    cluster_.runtime().run_for(3ms);
    return link;
  }

  FuzzInput& input_;
  std::map<std::size_t, std::shared_ptr<Connection>> links_;
  std::vector<Seat> seats_;
  std::deque<Frame> heard_;
  SimCluster cluster_;
  HostileFrames frames_;
};

}  // namespace

void hostile_mates(FuzzInput& input) {
  HostileMates(input).run();
}

void hostile_seals(FuzzInput& input) {
  constexpr std::uint32_t kPeers = 3;
  SimRuntime runtime(1);
  SimNetwork network(runtime, {});
  // What one seal says to a member and another to its mate is nobody's bug but the coordinator's.
  SimFabrics fabrics(runtime, {.setup = 1ms, .patience = 500ms, .ends_may_differ = true});
  const RunConfig config = run_of(input, {kPeers});
  const MakeModel model = make_model(input);
  WaywardCoordinator coordinator(input, network, config, kPeers);
  struct Member {
    std::unique_ptr<SimDevice> device;
    std::optional<PeerOutcome> outcome;
    std::unique_ptr<StagePeer> peer;
  };
  std::array<Member, kPeers> members;
  for (std::uint32_t i = 0; i < kPeers; ++i) {
    const SimNodeId node = SimCluster::node_of_peer(i);
    fabrics.set_place(node, {.host = "one", .card = i});
    Member& member = members[i];
    member.device = std::make_unique<SimDevice>(runtime.node(node), SimDeviceOptions{});
    StagePeerOptions options;
    options.coordinator = coordinator.address();
    options.machine.listen = "sim:0";
    options.machine.join_patience_seconds = 3;
    options.host = "one";
    options.fabric = &fabrics.node(node);
    options.gpu = {.uuid = fmt::format("GPU-{}", i), .nccl = 22809, .ipc = true};
    options.make_model = model;
    options.make_source = [](const RunConfig& c) -> Result<std::unique_ptr<MicrobatchSource>> {
      return std::make_unique<SyntheticSource>(c.run.seed, kVocab, c.batch.sequence);
    };
    member.peer = std::make_unique<StagePeer>(
        runtime.node(node), network.node(node), *member.device, std::move(options),
        [&member](PeerOutcome ended) { member.outcome = std::move(ended); });
    member.peer->start();
    runtime.run_for(3ms);
  }
  for (int i = 0; i < kFramesMax && !input.empty(); ++i) {
    const SimNodeId victim = SimCluster::node_of_peer(input.below(kPeers));
    switch (input.below(16)) {
      case 0:
        network.kill(victim);
        break;
      case 1:
        fabrics.stall(victim);
        break;
      case 2:
        fabrics.break_exchange(victim);
        break;
      case 3:
        network.cut(victim, SimCluster::node_of_peer(input.below(kPeers)));
        break;
      default:
        coordinator.act(victim);
    }
    runtime.run_for(std::chrono::milliseconds(input.below(20)));
  }
  runtime.run_for(40s);
  coordinator.end();
  // Each of its last tries may wait for a connection.
  runtime.run_for(20s);
  for (std::uint32_t i = 0; i < kPeers; ++i)
    SWARMLINE_CHECK_MSG(
        members[i].outcome.has_value() || !runtime.is_alive(SimCluster::node_of_peer(i)),
        "a peer outlives its coordinator");
}

}  // namespace swarmline
