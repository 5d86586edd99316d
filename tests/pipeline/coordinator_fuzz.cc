// Any frames at a running coordinator, from tools without a seat and from a peer that has one: it
// may end the run with a sentence, it never aborts and never stands still. Without a seat nobody
// disturbs the run at all.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "pipeline/protocol/protocol_version.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/resident_model.h"
#include "tests/pipeline/hostile_frames.h"
#include "tests/pipeline/swarm_config.h"

namespace {

using namespace swarmline;
using namespace std::chrono_literals;

constexpr SimNodeId kHostileNode = 50;
constexpr int kFramesMax = 64;
constexpr std::uint8_t kOnDevices = 0xF0;  // first bytes from there on: a stage sums on islands
constexpr std::uint32_t kMembers = 3;      // of that stage

const std::vector<MessageKind> kKinds =
    kinds_that_go(kToCoordinator, {MessageKind::kForward, MessageKind::kCommit});

struct Hostile {
  std::shared_ptr<Connection> connection;
  Seat seat;
};

void dial(SimCluster& cluster, Hostile& hostile) {
  cluster.network()
      .node(kHostileNode)
      .connect(*parse_address(kCoordinatorAddress), 10s,
               [&hostile](Result<std::shared_ptr<Connection>> made) {
                 if (!made) return;
                 hostile.connection = *made;
                 hostile.connection->start(
                     {.on_frame =
                          [&hostile](Frame frame) {
                            if (kind_of(frame) != MessageKind::kWelcome) return;
                            if (auto welcome = parse<wire::Welcome>(frame))
                              hostile.seat = from_wire(welcome->seat());
                          },
                      .on_closed = [&hostile](Error) { hostile.connection.reset(); }});
               });
}

// A GPU on a host that others are on, or like no other: what it says costs an attempt at most.
void say_gpu(FuzzInput& input, wire::Hello& hello) {
  hello.set_host(input.below(4) == 0 ? "right" : "left");
  wire::GpuIdentity& gpu = *hello.mutable_gpu();
  gpu.set_uuid(input.below(4) == 0 ? "GPU-left-1" : "GPU-left-9");
  gpu.set_nccl(input.below(4) == 0 ? static_cast<std::uint32_t>(input.number()) : 22809U);
  gpu.set_ipc(input.below(4) != 0);
}

Frame hello(FuzzInput& input, bool on_devices) {
  wire::Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_address("sim:50");
  if (on_devices) say_gpu(input, hello);
  Frame frame = make_frame(MessageKind::kHello, hello);
  frame.request = 1;
  return frame;
}

// What a peer without a coordinator says to the next one, under the name of one that has a seat.
Frame hello_again(FuzzInput& input, const std::vector<Seat>& seats, bool on_devices) {
  const std::size_t i = input.below(seats.size());
  wire::Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_name(fmt::format("sim-{}", i));
  hello.set_address(fmt::format("sim:{}", SimCluster::node_of_peer(i)));
  hello.set_run_id("simulated");
  hello.set_term(1 + input.below(4));
  *hello.mutable_previous() = to_wire(seats[i]);
  HostileFrames frames{.input = input, .seats = {seats[i]}};
  frames.fill(*hello.mutable_holdings());
  if (on_devices) say_gpu(input, hello);
  Frame frame = make_frame(MessageKind::kHello, hello);
  frame.request = 1;
  return frame;
}

// A stage whose members are on one host, or on two.
void put_on_devices(FuzzInput& input, SimClusterOptions& options) {
  options.make_model = make_resident_model;
  options.fabric = {.setup = 1ms, .patience = 500ms};
  const bool together = input.below(2) == 0;
  options.peers.resize(options.config.pipeline.stages - 1);
  for (std::uint32_t i = 0; i < kMembers; ++i) {
    const std::string host = together || i != 1 ? "left" : "right";
    options.peers.push_back(
        {.host = host,
         .gpu = SimFabricPlace{.host = host, .card = i, .nccl = input.below(8) != 7}});
  }
}

// What a member says of its state, of the average that is under way, and of how it went.
class Hearsay {
 public:
  void see(const Frame& frame) {
    if (kind_of(frame) == MessageKind::kSeal) {
      if (auto seal = parse<wire::Seal>(frame); seal && seal->groups_size() > 0)
        seal_ = std::move(*seal);
    } else if (kind_of(frame) == MessageKind::kReduced) {
      if (auto reduced = parse<wire::Reduced>(frame)) reduced_ = std::move(*reduced);
    } else if (kind_of(frame) == MessageKind::kReady) {
      if (auto ready = parse<wire::Ready>(frame)) ready_ = std::move(*ready);
    }
  }
  // Of `seat`; none: nobody has said such a thing yet.
  std::optional<Frame> word(FuzzInput& input, const Seat& seat, const Seat& other) const {
    switch (input.below(8)) {
      case 0:
        return ready_ ? under_the_name(MessageKind::kReady, *ready_, seat) : std::nullopt;
      case 1:
        return reduced_ ? under_the_name(MessageKind::kReduced, *reduced_, seat) : std::nullopt;
      default:
        return seal_ ? broken(input, seat, other) : std::nullopt;
    }
  }

 private:
  template <typename Message>
  static std::optional<Frame> under_the_name(MessageKind kind, Message message, const Seat& seat) {
    *message.mutable_seat() = to_wire(seat);
    return make_frame(kind, message);
  }
  std::optional<Frame> broken(FuzzInput& input, const Seat& seat, const Seat& other) const {
    const auto groups = static_cast<std::uint64_t>(seal_->groups_size());
    const wire::ReduceGroup& group = seal_->groups(static_cast<int>(input.below(groups)));
    wire::RoundBroken broken;
    *broken.mutable_beyond() = to_wire(input.below(4) == 0 ? other : seat);
    *broken.mutable_phase() = seal_->phase();
    broken.set_group(group.group());
    broken.set_attempt(group.attempt() + (input.below(4) == 0 ? 1 : 0));
    broken.set_fabric(input.below(4) != 0);
    return under_the_name(MessageKind::kRoundBroken, std::move(broken), seat);
  }

  std::optional<wire::Seal> seal_;
  std::optional<wire::Reduced> reduced_;
  std::optional<wire::Ready> ready_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet =
      (init_log({.level = LogLevel::kError, .file = "/dev/null", .prefix = ""}), true);
  (void)quiet;
  FuzzInput input(data, size);
  const std::uint8_t first = input.byte();
  const bool on_devices = first >= kOnDevices;
  // A stage that is all of the run is the one that a newcomer comes to.
  const bool is_all = on_devices && input.below(2) == 0;
  RunConfig config = !on_devices ? small_run(2, 1)
                     : is_all    ? small_run({kMembers})
                                 : small_run({1, kMembers});
  config.model.layers = 2;
  config.model.d_model = 4;
  config.batch = {.batch = 8, .microbatch = 2, .sequence = 2};
  config.run.steps = 3;
  config.net.heartbeat_seconds = 5;
  config.net.peer_silence_seconds = 30;
  config.pipeline.delay = first % 2;
  if (on_devices) config.net.islands = Islands::kHost;
  config.run.on_nonfinite = input.below(2) == 0 ? NonFinite::kSkip : NonFinite::kStop;
  config.checkpoint.every_steps = input.below(2);
  const std::uint64_t role = input.below(5);
  const bool joins = role != 0, again = role == 4;
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.eval_sequences = 4;
  if (on_devices) put_on_devices(input, options);
  SimCluster cluster(std::move(options));
  Hearsay hearsay;
  if (on_devices)
    cluster.network().set_tap(
        [&](SimNodeId, SimNodeId, const Frame& frame) { hearsay.see(frame); });

  std::vector<Seat> seats;
  if (again) {
    cluster.runtime().run_for(std::chrono::milliseconds(20 + input.byte()));
    for (std::size_t i = 0; i < cluster.peers(); ++i) seats.push_back(cluster.peer(i).seat());
    cluster.kill_coordinator();
    cluster.restart_coordinator();
  }
  Hostile hostile;
  dial(cluster, hostile);
  cluster.runtime().run_for(2ms);
  if (again && hostile.connection) hostile.connection->send(hello_again(input, seats, on_devices));
  if (joins && !again && hostile.connection) hostile.connection->send(hello(input, on_devices));
  cluster.runtime().run_for(3ms);
  if (joins && hostile.seat.peer.value != 0 && input.below(4) != 0) {
    wire::Ready ready;
    *ready.mutable_seat() = to_wire(hostile.seat);
    hostile.connection->send(make_frame(MessageKind::kReady, ready));
  }
  HostileFrames frames{.input = input, .seats = {}, .activation_elements = 2 * 2 * 4};
  for (int i = 0; i < kFramesMax && !input.empty() && !cluster.outcome(); ++i) {
    frames.seats = {hostile.seat};
    for (std::size_t peer = 0; peer < cluster.peers(); ++peer)
      frames.seats.push_back(cluster.peer(peer).seat());
    if (!hostile.connection) dial(cluster, hostile);
    cluster.runtime().run_for(std::chrono::milliseconds(input.below(20)));
    if (!hostile.connection) continue;
    if (on_devices && input.below(4) == 0) {
      const Seat& other = frames.seats[input.below(frames.seats.size())];
      if (auto word = hearsay.word(input, hostile.seat, other))
        hostile.connection->send(std::move(*word));
      continue;
    }
    Frame frame = frames.next(kKinds);
    // Without a seat of its own from the start it may not take one later: then the run must not
    // notice it.
    if (!joins && kind_of(frame) == MessageKind::kHello) continue;
    if (kind_of(frame) == MessageKind::kStopRequest) continue;
    hostile.connection->send(std::move(frame));
  }
  const auto outcome = cluster.run(700s);
  if (!joins)
    SWARMLINE_CHECK_MSG(outcome && outcome->exit_code == 0,
                        outcome ? outcome->sentence : "it hangs");
  SWARMLINE_CHECK_MSG(outcome.has_value(), cluster.coordinator().status_json());
  return 0;
}
