// Any frames at a running coordinator, from tools without a seat and from a peer that has one: it
// may end the run with a sentence, it never aborts and never stands still. Without a seat nobody
// disturbs the run at all.
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "pipeline/protocol/protocol_version.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/pipeline/hostile_frames.h"
#include "tests/pipeline/swarm_config.h"

namespace {

using namespace swarmline;
using namespace std::chrono_literals;

constexpr SimNodeId kHostileNode = 50;
constexpr int kFramesMax = 64;

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

Frame hello() {
  wire::Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_address("sim:50");
  Frame frame = make_frame(MessageKind::kHello, hello);
  frame.request = 1;
  return frame;
}

// What a peer without a coordinator says to the next one, under the name of one that has a seat.
Frame hello_again(FuzzInput& input, const std::vector<Seat>& seats) {
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
  Frame frame = make_frame(MessageKind::kHello, hello);
  frame.request = 1;
  return frame;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet =
      (init_log({.level = LogLevel::kError, .file = "/dev/null", .prefix = ""}), true);
  (void)quiet;
  FuzzInput input(data, size);
  RunConfig config = small_run(2, 1);
  config.model.layers = 2;
  config.model.d_model = 4;
  config.batch = {.batch = 8, .microbatch = 2, .sequence = 2};
  config.run.steps = 3;
  config.net.heartbeat_seconds = 5;
  config.net.peer_silence_seconds = 30;
  config.pipeline.delay = static_cast<std::uint32_t>(input.below(2));
  config.run.on_nonfinite = input.below(2) == 0 ? NonFinite::kSkip : NonFinite::kStop;
  config.checkpoint.every_steps = input.below(2);
  const std::uint64_t role = input.below(5);
  const bool joins = role != 0, again = role == 4;
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.eval_sequences = 4;
  SimCluster cluster(std::move(options));

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
  if (again && hostile.connection) hostile.connection->send(hello_again(input, seats));
  if (joins && !again && hostile.connection) hostile.connection->send(hello());
  cluster.runtime().run_for(3ms);
  if (joins && hostile.seat.peer.value != 0 && input.below(4) != 0) {
    wire::Ready ready;
    *ready.mutable_seat() = to_wire(hostile.seat);
    hostile.connection->send(make_frame(MessageKind::kReady, ready));
  }
  HostileFrames frames{.input = input, .seats = {}, .activation_elements = 2 * 2 * 4};
  for (int i = 0; i < kFramesMax && !input.empty() && !cluster.outcome(); ++i) {
    frames.seats = {hostile.seat, cluster.peer(0).seat(), cluster.peer(1).seat()};
    if (!hostile.connection) dial(cluster, hostile);
    cluster.runtime().run_for(std::chrono::milliseconds(input.below(20)));
    if (!hostile.connection) continue;
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
