// Any frames at running stage peers, over links that claim to be another peer's, and from the
// coordinator itself: a peer may close the link or end with a sentence; it never aborts, and time
// goes on. Some inputs are of peers that compute on devices (hostile_islands.h).
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "engine/config/load.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/synthetic_source.h"
#include "tests/pipeline/hostile_frames.h"
#include "tests/pipeline/hostile_islands.h"
#include "tests/pipeline/swarm_config.h"

namespace {

using namespace swarmline;
using namespace std::chrono_literals;

constexpr SimNodeId kHostileNode = 50;
constexpr int kFramesMax = 64;
constexpr std::uint8_t kOnDevices = 0xF0;  // first bytes from there on: islands of GPUs
constexpr std::uint32_t kVocab = 31;

const std::vector<MessageKind> kFromPeers = kinds_that_go(
    kBetweenPeers, {MessageKind::kForward, MessageKind::kGradient, MessageKind::kCommit});
const std::vector<MessageKind> kToPeer = kinds_that_go(kFromCoordinator, {MessageKind::kForward});

// After it the peer hears of nothing else.
bool is_the_last(MessageKind kind) {
  return kind == MessageKind::kShutdown || kind == MessageKind::kFenced;
}

RunConfig tiny(FuzzInput& input, std::uint32_t stages, std::uint32_t peers) {
  RunConfig config = small_run(stages, peers);
  config.model.layers = 2;
  config.model.d_model = 4;
  config.batch = {.batch = 8, .microbatch = 2, .sequence = 2};
  config.run.steps = 3;
  config.wiring.hop_timeout_seconds = 0.2;
  config.net.heartbeat_seconds = 5;
  config.net.peer_silence_seconds = 30;
  config.net.coordinator_patience_seconds = 3;
  config.net.admit_bytes = input.below(2);
  config.pipeline.delay = static_cast<std::uint32_t>(input.below(2));
  config.pipeline.wiring = input.below(2) == 0 ? WiringKind::kStatic : WiringKind::kStochastic;
  return config;
}

HostileFrames frames_of(FuzzInput& input) {
  return {.input = input,
          .seats = {},
          .activation_elements = 2 * 2 * 4,
          .activation_targets_bytes = 2 * 2 * 2};
}

// Links to each peer of a running swarm, under the name of whoever the input says. `slow`: tensors
// are large for their wire, and looked at while they come; a second link may come under a name that
// has one.
void hostile_links(FuzzInput& input, bool slow) {
  SimClusterOptions options = swarm_of(tiny(input, 2, 2), make_fake_model);
  if (slow) {
    options.link.bytes_per_second = 50'000;
    options.arrival_bytes_min = 32;
  }
  SimCluster cluster(std::move(options));
  int opened = 0;
  cluster.network().set_tap([&](SimNodeId, SimNodeId, const Frame& frame) {
    opened += kind_of(frame) == MessageKind::kOpenPhase;
  });
  cluster.run_until([&] { return opened == 4; }, 60s);
  std::vector<Seat> seats;
  for (std::size_t i = 0; i < cluster.peers(); ++i) seats.push_back(cluster.peer(i).seat());
  seats.push_back({PeerId{77}, StageId{0}, Incarnation{1}});
  HostileFrames frames = frames_of(input);
  std::map<std::size_t, std::shared_ptr<Connection>> links;
  std::map<std::size_t, Seat> names;
  for (int i = 0; i < kFramesMax && !input.empty() && !cluster.outcome(); ++i) {
    cluster.runtime().run_for(std::chrono::milliseconds(input.below(8)));
    const std::size_t victim = input.below(cluster.peers());
    const std::size_t link = victim + (slow && input.below(2) == 1 ? cluster.peers() : 0);
    if (!links[link]) {
      names[link] = seats[input.below(seats.size())];
      const auto port = static_cast<std::uint16_t>(SimCluster::node_of_peer(victim));
      cluster.network()
          .node(kHostileNode)
          .connect({"sim", port}, 1s, [&](Result<std::shared_ptr<Connection>> made) {
            if (!made) return;
            links[link] = *made;
            (*made)->start({.on_frame = [](Frame) {},
                            .on_closed = [&links, link](Error) { links[link].reset(); }});
            wire::LinkHello hello;
            hello.set_term(1);
            hello.set_run_id("simulated");
            *hello.mutable_from() = to_wire(names[link]);
            *hello.mutable_to() = to_wire(seats[victim]);
            (*made)->send(make_frame(MessageKind::kLinkHello, hello));
          });
      cluster.runtime().run_for(3ms);
      if (!links[link]) continue;
    }
    frames.seats = seats;
    links[link]->send(frames.next(kFromPeers));
  }
  cluster.run(320s);
}

// One peer whose coordinator lost its mind after the welcome.
void hostile_coordinator(FuzzInput& input) {
  SimRuntime runtime(1);
  SimNetwork network(runtime, {});
  RunConfig config = tiny(input, 2, 1);
  // A mate may have been given this address, too: only who says Hello takes it for a coordinator.
  std::vector<std::shared_ptr<Connection>> open;  // as they came: pointers differ by process
  std::shared_ptr<Connection> link;
  std::uint64_t hello = 0;
  const auto at = [&](const Connection* end) {
    return std::ranges::find_if(open, [&](const auto& one) { return one.get() == end; });
  };
  auto bound = network.node(0).listen({"sim", 1}, [&](const std::shared_ptr<Connection>& made) {
    open.push_back(made);
    made->start({.on_frame =
                     [&, self = made.get()](const Frame& frame) {
                       if (kind_of(frame) != MessageKind::kHello) return;
                       link = *at(self);
                       hello = frame.request;
                     },
                 .on_closed =
                     [&, self = made.get()](const Error&) {
                       if (link.get() == self) link.reset();
                       open.erase(at(self));
                     }});
  });
  SWARMLINE_CHECK(bound.has_value());
  SimDevice device(runtime.node(1), {});
  StagePeerOptions options;
  options.coordinator = *bound;
  options.machine.listen = "sim:0";
  options.machine.join_patience_seconds = 3;
  options.make_model = make_fake_model;
  options.make_source = [&](const RunConfig& c) -> Result<std::unique_ptr<MicrobatchSource>> {
    return std::make_unique<SyntheticSource>(c.run.seed, kVocab, c.batch.sequence);
  };
  std::optional<PeerOutcome> outcome;
  StagePeer peer(runtime.node(1), network.node(1), device, std::move(options),
                 [&](PeerOutcome ended) { outcome = std::move(ended); });
  peer.start();
  runtime.run_for(10ms);
  if (!link) return;

  HostileFrames frames = frames_of(input);
  const Seat self{PeerId{1}, StageId{static_cast<std::uint16_t>(input.below(2))}, Incarnation{1}};
  frames.seats = {
      self, {PeerId{2}, StageId{0}, Incarnation{1}}, {PeerId{3}, StageId{1}, Incarnation{1}}};
  wire::Welcome welcome;
  if (input.below(8) == 0) frames.fill(welcome);
  welcome.set_config_toml(to_toml(config));
  welcome.set_run_id("simulated");
  if (input.below(8) != 0) {
    welcome.set_vocab(kVocab);
    *welcome.mutable_seat() = to_wire(self);
    welcome.clear_cuts();
    for (std::uint32_t stage = 0; stage < 2; ++stage) {
      wire::StageCut* cut = welcome.add_cuts();
      cut->set_first_layer(stage);
      cut->set_last_layer(stage + 1);
    }
    welcome.set_heartbeat_seconds(0.5);
  }
  Frame reply = make_frame(MessageKind::kWelcome, welcome);
  reply.request = hello;
  reply.flags = kFrameFlagReply;
  link->send(std::move(reply));
  runtime.run_for(20ms);
  for (int i = 0; i < kFramesMax && !input.empty() && link && !outcome; ++i) {
    Frame frame = frames.next(kToPeer);
    if (is_the_last(kind_of(frame)) && input.below(8) != 0) continue;
    link->send(std::move(frame));
    runtime.run_for(std::chrono::milliseconds(input.below(20)));
  }
  runtime.run_for(40s);
  network.node(0).stop_listening();
  for (const auto& left : std::vector(open)) left->close();
  // Each of its last tries may wait for a connection.
  runtime.run_for(20s);
  SWARMLINE_CHECK_MSG(outcome.has_value(), "the peer outlives its coordinator");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet =
      (init_log({.level = LogLevel::kError, .file = "/dev/null", .prefix = ""}), true);
  (void)quiet;
  FuzzInput input(data, size);
  const std::uint8_t first = input.byte();
  const std::uint64_t way = first % 4;
  if (first >= kOnDevices)
    way % 2 == 0 ? hostile_mates(input) : hostile_seals(input);
  else if (way % 2 == 0)
    hostile_links(input, way == 2);
  else
    hostile_coordinator(input);
  return 0;
}
