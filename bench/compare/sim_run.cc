#include "bench/compare/sim_run.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/log.h"
#include "bench/compare/reference_wiring.h"
#include "pipeline/protocol/message_kinds.h"
#include "sim/cluster/fake_stage_model.h"

namespace swarmline::bench {
namespace {

using namespace std::chrono_literals;

// A tensor far larger than a message's other bytes, and than a share of its stage's parameters.
constexpr std::uint32_t kSequence = 256;
constexpr std::uint32_t kWidth = 8;
constexpr double kTensorBytes = kSequence * kWidth * sizeof(double);
constexpr Duration kRunMax = 100h;  // of virtual time
constexpr double kNever = 3600;     // seconds: nothing times out

// Steps before and after those that are measured: with a delay their neighbours take part.
std::uint64_t around_of(const SimPlan& plan) {
  return plan.delay;
}

// When the bytes of a frame have passed the sender's uplink and the receiver's downlink.
class Links {
 public:
  Links(const SimPlan& plan, std::size_t nodes)
      : bytes_per_second_(to_seconds(plan.wire) > 0 ? kTensorBytes / to_seconds(plan.wire) : 0),
        latency_min_(to_seconds(plan.latency_min)),
        latency_span_(to_seconds(plan.latency_max) - latency_min_),
        up_(nodes),
        down_(nodes),
        rng_(Rng(plan.seed).split("latency")) {}

  Duration delay(SimNodeId from, SimNodeId to, std::uint64_t bytes, Instant now) {
    Instant through = now;
    if (from != 0 && to != 0 && bytes_per_second_ > 0) {
      const Duration wire = from_seconds(static_cast<double>(bytes) / bytes_per_second_);
      up_[from] = std::max(up_[from], now) + wire;
      through = down_[to] = std::max(up_[from], down_[to] + wire);
    }
    return through - now + from_seconds(latency_min_ + latency_span_ * rng_.uniform());
  }

 private:
  double bytes_per_second_, latency_min_, latency_span_;
  std::vector<Instant> up_, down_;  // free from then on
  Rng rng_;
};

// Reads what it needs from the frames that pass.
class Meter {
 public:
  Meter(const SimPlan& plan, std::size_t nodes)
      : plan_(plan), links_(plan, nodes), received_(nodes), wirings_(nodes) {}

  FrameFate on_sent(SimNodeId from, SimNodeId to, const Frame& frame, Instant now) {
    if (kind_of(frame) == MessageKind::kForward) {
      if (const auto id = id_in<wire::Forward>(frame)) sent_[{from, *id}] = now;
    }
    return {.kind = FrameFate::Kind::kDelay,
            .delay = links_.delay(from, to, frame.wire_bytes(), now)};
  }

  void on_delivered(SimNodeId from, SimNodeId to, const Frame& frame, Instant now) {
    switch (kind_of(frame)) {
      case MessageKind::kOpenPhase:
        return note(opened_, parse<wire::OpenPhase>(frame)->phase().step(), now);
      case MessageKind::kSeal:
        return note(sealed_, parse<wire::Seal>(frame)->phase().step(), now);
      case MessageKind::kCommit:
        return note(committed_, parse<wire::Commit>(frame)->step(), now);
      case MessageKind::kForward:
        if (parse<wire::Forward>(frame)->id().phase().step() > 0) ++received_[to];
        return;
      case MessageKind::kForwardDone:
        return on_forward_done(from, to, *id_in<wire::ForwardDone>(frame), now);
      case MessageKind::kGradientArrived:
        // The sender begins its backward.
        if (const auto id = id_in<wire::GradientArrived>(frame)) began_[{to, *id}] = now;
        return;
      case MessageKind::kGradient:
        return on_gradient(from, to, *id_in<wire::Gradient>(frame), now);
      default:
        return;
    }
  }

  void set_wiring(SimNodeId node, ReferenceWiring* wiring) { wirings_[node] = wiring; }
  void set_stages(std::vector<std::vector<SimNodeId>> nodes) { nodes_ = std::move(nodes); }

  SimMeasured result() {
    SimMeasured measured;
    const auto steps = static_cast<double>(plan_.steps - 1);
    const std::uint64_t begin = 1 + around_of(plan_);
    const std::uint64_t end = begin + plan_.steps - 1;
    for (std::uint64_t step = begin; step < end; ++step) {
      measured.batch_seconds += to_seconds(sealed_.at(step) - opened_.at(step)) / steps;
      measured.averaging_seconds += to_seconds(committed_.at(step) - sealed_.at(step)) / steps;
    }
    measured.step_seconds = to_seconds(committed_.at(end - 1) - committed_.at(begin - 1)) / steps;
    for (const auto& stage : nodes_) {
      auto& shares = measured.shares.emplace_back();
      for (const SimNodeId node : stage) shares.push_back(static_cast<double>(received_[node]));
      const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
      for (double& share : shares) share /= std::max(sum, 1.0);
    }
    std::ranges::sort(round_trips_);
    measured.round_trips = std::move(round_trips_);
    return measured;
  }

 private:
  using Steps = std::map<std::uint64_t, Instant>;
  using Hop = std::pair<SimNodeId, AttemptId>;  // by its sender

  template <typename Message>
  static std::optional<AttemptId> id_in(const Frame& frame) {
    const auto message = parse<Message>(frame);
    if (!message) return std::nullopt;
    return from_wire(message->id());
  }
  static void note(Steps& steps, std::uint64_t step, Instant now) { steps.try_emplace(step, now); }

  void on_forward_done(SimNodeId from, SimNodeId to, const AttemptId& id, Instant now) {
    observe(from, to, seconds_since(sent_, {to, id}, now), 1);
    began_[{to, id}] = now;  // the last stage goes on at once, others say when
  }
  void on_gradient(SimNodeId from, SimNodeId to, const AttemptId& id, Instant now) {
    observe(from, to, seconds_since(began_, {to, id}, now), ReferenceWiring::kBackwardUnits);
    const auto sent = sent_.find({to, id});
    const bool first_stage = std::ranges::find(nodes_.front(), to) != nodes_.front().end();
    if (first_stage && sent != sent_.end() && id.microbatch.phase.step > 0)
      round_trips_.push_back(to_seconds(now - sent->second));
    began_.erase({to, id});
    if (sent != sent_.end()) sent_.erase(sent);
  }
  static double seconds_since(const std::map<Hop, Instant>& events, const Hop& hop, Instant now) {
    const auto event = events.find(hop);
    return event == events.end() ? 0 : to_seconds(now - event->second);
  }
  void observe(SimNodeId from, SimNodeId to, double seconds, double units) {
    if (wirings_[to] != nullptr && seconds > 0)
      wirings_[to]->observe(peer_of_.at(from), seconds, units);
  }

 public:
  void set_peer(SimNodeId node, PeerId peer) { peer_of_[node] = peer; }

 private:
  const SimPlan& plan_;
  Links links_;
  std::vector<std::uint64_t> received_;
  std::vector<ReferenceWiring*> wirings_;
  std::map<SimNodeId, PeerId> peer_of_;
  std::vector<std::vector<SimNodeId>> nodes_;  // by stage
  Steps opened_, sealed_, committed_;          // as the first to hear of it did
  std::map<Hop, Instant> sent_, began_;
  std::vector<double> round_trips_;
};

// Stages take newcomers in turn, as long as they want any.
struct Place {
  std::size_t stage, replica;
};
std::vector<Place> joining_order(const std::vector<std::uint32_t>& peers) {
  std::vector<Place> order;
  for (std::size_t replica = 0; replica < std::ranges::max(peers); ++replica)
    for (std::size_t stage = 0; stage < peers.size(); ++stage)
      if (replica < peers[stage]) order.push_back({stage, replica});
  return order;
}

}  // namespace

RunConfig config_of(const SimPlan& plan) {
  RunConfig config;
  config.codec = {.forward = "none", .backward = "none"};
  config.run.steps = plan.steps + 2 * around_of(plan);
  config.run.seed = plan.seed;
  config.model.layers = static_cast<std::uint32_t>(plan.peers.size());
  config.model.d_model = kWidth;
  config.model.heads = 1;
  config.model.dtype = DType::kF64;
  config.data.files = {"synthetic"};
  config.batch = {.batch = plan.microbatches, .microbatch = 1, .sequence = kSequence};
  config.optimizer.schedule = LearningSchedule::kConstant;
  config.pipeline.stages = static_cast<std::uint32_t>(plan.peers.size());
  config.pipeline.peers = plan.peers;
  config.pipeline.delay = plan.delay;
  config.pipeline.in_flight = plan.in_flight;
  config.pipeline.layers.assign(plan.peers.size(), 1);
  const bool fixed = plan.rule == Rule::kGPipe || plan.rule == Rule::k1F1B;
  config.pipeline.wiring = fixed ? WiringKind::kStatic : WiringKind::kStochastic;
  if (fixed)
    config.pipeline.order = plan.rule == Rule::kGPipe ? OrderKind::kGPipe : OrderKind::k1F1B;
  config.wiring.in_flight_per_peer = plan.in_flight_per_peer;
  config.wiring.hop_timeout_seconds = kNever;
  config.net.peer_silence_seconds = kNever;
  return config;
}

const char* name_of(Rule rule) {
  switch (rule) {
    case Rule::kSwarm:
      return "swarmline";
    case Rule::kGPipe:
      return "GPipe";
    case Rule::k1F1B:
      return "1F1B";
    case Rule::kReference:
      return "reference's wiring";
  }
  return "";
}

std::vector<std::vector<SimPeer>> equal_devices(std::uint32_t stages, std::uint32_t replicas,
                                                SimPeer device) {
  return {stages, std::vector<SimPeer>(replicas, device)};
}

double SimMeasured::quantile(double q) const {
  if (round_trips.empty()) return 0;
  const auto last = static_cast<double>(round_trips.size() - 1);
  return round_trips[static_cast<std::size_t>(q * last)];
}

SimMeasured run_simulated(const SimPlan& plan) {
  SWARMLINE_CHECK(plan.steps >= 2 && plan.devices.size() == plan.peers.size());
  const std::vector<Place> order = joining_order(plan.peers);
  SimClusterOptions options;
  options.config = config_of(plan);
  options.seed = plan.seed;
  options.make_model = make_fake_model;
  for (const Place& place : order)
    options.peers.push_back(plan.devices[place.stage].at(place.replica));
  std::map<PeerId, ReferenceWiring*> wirings;
  if (plan.rule == Rule::kReference) {
    options.make_wiring = [&](const RunConfig&, const Seat& self) {
      auto wiring = std::make_unique<ReferenceWiring>(plan.seed + self.peer.value);
      wirings[self.peer] = wiring.get();
      return wiring;
    };
  }
  SimCluster cluster(std::move(options));
  Meter meter(plan, order.size() + 1);
  bool formed = false;
  const auto form = [&] {
    std::vector<std::vector<SimNodeId>> nodes(plan.peers.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const SimNodeId node = SimCluster::node_of_peer(i);
      const Seat seat = cluster.peer(i).seat();
      SWARMLINE_CHECK_MSG(seat.stage.value == order[i].stage, "a peer with another stage's device");
      nodes[seat.stage.value].push_back(node);
      meter.set_peer(node, seat.peer);
      if (const auto wiring = wirings.find(seat.peer); wiring != wirings.end())
        meter.set_wiring(node, wiring->second);
    }
    meter.set_stages(std::move(nodes));
    formed = true;
  };
  cluster.network().set_filter([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    // Links are ideal until everybody is seated, so that peers join in order.
    if (!formed) return FrameFate{};
    return meter.on_sent(from, to, frame, cluster.runtime().now());
  });
  cluster.network().set_tap([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    if (!formed && kind_of(frame) == MessageKind::kOpenPhase) form();
    meter.on_delivered(from, to, frame, cluster.runtime().now());
  });
  const auto outcome = cluster.run(kRunMax);
  SWARMLINE_CHECK_MSG(outcome && outcome->exit_code == 0,
                      outcome ? outcome->sentence : cluster.coordinator().status_json());
  return meter.result();
}

}  // namespace swarmline::bench
