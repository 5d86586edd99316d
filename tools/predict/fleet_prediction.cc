#include "tools/predict/fleet_prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "balancer/cut.h"
#include "balancer/seating.h"
#include "base/hours.h"
#include "engine/config/configured_codec.h"
#include "node/stage_memory.h"
#include "pipeline/source/lease_window.h"

namespace swarmline {
namespace {

constexpr double kTokensOfPrice = 1e9;
constexpr double kBitsPerByte = 8;
// Of the fixed point: queues settle in some tens of rounds.
constexpr int kRoundsMax = 2000;
constexpr double kSettled = 1e-9;
// Report, seal, what is reduced, commit: each waits for the one before.
constexpr double kStepMessages = 4;
// Steps that are open at a time with pipeline.delay = 1.
constexpr double kStepsWithDelay = 2;
// Weight gradients that wait at a time: half of as many as may.
constexpr double kAddedAtTheEnd = 4, kAddedAtTheEndOfLast = 1;
// A source asks for another microbatch when one has ended.
constexpr double kLeaseMessages = 2;

// Seconds of `part` count half.
struct Faster {
  FleetPart part = FleetPart::kNone;
  double of(FleetPart what) const { return part == what ? 0.5 : 1; }
};

// Equal servers that a microbatch of a stage visits, each alike.
struct Station {
  std::size_t stage = 0;
  bool is_device = true;
  std::uint32_t servers = 1;
  double chance = 1;   // that a microbatch comes to one of them
  double visits = 0;   // of a microbatch that comes
  double service = 0;  // mean of a visit
  double later = 0;    // a microbatch takes so much more, for which nobody waits
  double spread = 0;   // squared coefficient of variation of a visit
  double queue = 0;    // customers at one of them
  double visit_seconds = 0;
  double rate() const { return chance * visits; }
  double work() const { return rate() * service + chance * later; }  // of a microbatch, in the mean
};

std::vector<StageFacts> stage_facts(const std::vector<StageSpec>& cut, const ModelCosts& costs,
                                    double rows) {
  std::vector<StageFacts> facts;
  for (const StageSpec& stage : cut) facts.push_back({.cost = stage_flops(costs, stage) * rows});
  return facts;
}

using Seats = std::vector<std::vector<std::uint32_t>>;  // by stage, class

// What a device must hold at least to serve each stage, where somebody says what it has.
void add_memory(const FleetQuestion& question, const std::vector<StageSpec>& cut,
                std::vector<StageFacts>& facts) {
  if (std::ranges::all_of(question.classes, [](const FleetClass& c) { return !c.memory_bytes; }))
    return;
  RunConfig config = question.config;
  config.pipeline.peers.assign(cut.size(), 1);
  const bool recompute = config.pipeline.recompute != Recompute::kNever;
  for (std::uint32_t s = 0; s < cut.size(); ++s) {
    const MemoryQuestion stage{.config = config, .model = question.model, .cut = cut, .stage = s};
    facts[s].memory_bytes = cuda_peer_memory(stage, recompute).device.total();
  }
}

Result<Seats> seats_of(const FleetQuestion& question, const std::vector<StageSpec>& cut,
                       std::vector<StageFacts> facts) {
  if (!question.seats.empty()) return question.seats;
  add_memory(question, cut, facts);
  SwarmSnapshot snapshot{.stages = facts, .peers = {}};
  std::vector<std::size_t> class_of;
  for (std::size_t c = 0; c < question.classes.size(); ++c) {
    for (std::uint32_t i = 0; i < question.classes[c].count; ++i) {
      snapshot.peers.push_back({.peer = PeerId(static_cast<std::uint32_t>(class_of.size()) + 1),
                                .speed = question.classes[c].flops_per_second,
                                .memory_bytes = question.classes[c].memory_bytes,
                                .stage = std::nullopt});
      class_of.push_back(c);
    }
  }
  const auto seating = seat_peers(snapshot);
  if (!seating) return fail(ErrorCode::kUserMistake, "the fleet: " + seating.error().what);
  Seats seats(facts.size(), std::vector<std::uint32_t>(question.classes.size(), 0));
  for (const Seating& seat : *seating) ++seats[seat.stage.value][class_of[seat.peer.value - 1]];
  return seats;
}

std::uint32_t peers_of(const std::vector<std::uint32_t>& seats) {
  return std::accumulate(seats.begin(), seats.end(), 0U);
}

class Model {
 public:
  Model(const FleetQuestion& question, std::vector<StageSpec> cut, Seats seats, Faster faster)
      : question_(question),
        config_(question.config),
        cut_(std::move(cut)),
        seats_(std::move(seats)),
        faster_(faster),
        costs_(model_costs(question.model)) {
    for (std::size_t s = 0; s < cut_.size(); ++s) add_stations(s);
    sources_ = peers_of(seats_.front());
    const std::uint32_t peers =
        std::accumulate(seats_.begin(), seats_.end(), 0U,
                        [](std::uint32_t sum, const auto& stage) { return sum + peers_of(stage); });
    microbatches_ = config_.microbatches_per_step();
    // With a delay, too: one step drains while the next one fills.
    in_flight_ =
        std::min(window_for(config_.pipeline.in_flight, peers, sources_) * sources_, microbatches_);
  }

  FleetPrediction predict() {
    solve();
    FleetPrediction prediction;
    double empty = delay_;
    for (std::size_t s = 0; s < cut_.size(); ++s) prediction.stages.push_back(stage(s));
    for (const Station& station : stations_) empty += station.rate() * station.service;
    prediction.drain_seconds = empty / 2 + added_at_the_end();
    for (std::size_t s = 1; s < cut_.size(); ++s) prediction.drain_seconds += excess_of_peers(s);
    prediction.batch_seconds =
        std::max(microbatches_ / throughput_ + prediction.drain_seconds, empty);
    for (const FleetStage& stage : prediction.stages)
      prediction.averaging_seconds =
          std::max(prediction.averaging_seconds, stage.averaging_seconds);
    const double messages = kStepMessages * latency();
    prediction.averaging_seconds += messages / 2;
    const double batch = prediction.batch_seconds + messages / 2;
    prediction.step_seconds = batch + prediction.averaging_seconds;
    // Two steps are open at a time, and averaged one after the other.
    if (config_.pipeline.delay == 1)
      prediction.step_seconds = std::max({microbatches_ / throughput_, prediction.averaging_seconds,
                                          prediction.step_seconds / kStepsWithDelay});
    prediction.in_flight = in_flight_;
    prediction.tokens_per_second =
        static_cast<double>(config_.tokens_per_step()) / prediction.step_seconds;
    for (const FleetClass& c : question_.classes)
      prediction.dollars_per_hour += c.count * c.dollars_per_hour;
    prediction.traffic = traffic();
    prediction.egress_dollars_per_hour =
        prediction.traffic.dollars / prediction.step_seconds * kSecondsPerHour;
    prediction.dollars_per_billion_tokens =
        (prediction.dollars_per_hour + prediction.egress_dollars_per_hour) / kSecondsPerHour /
        prediction.tokens_per_second * kTokensOfPrice;
    return prediction;
  }

  FleetTraffic traffic() const {
    FleetTraffic traffic;
    for (std::size_t s = 0; s < cut_.size(); ++s) {
      const double members = peers_of(seats_[s]);
      const double averaging = 2 * parameter_bits(s) / kBitsPerByte * (members - 1) / members;
      for (std::size_t c = 0; c < question_.classes.size(); ++c) {
        if (seats_[s][c] == 0) continue;
        const double boundary = microbatches_ * chance_of(s, c) * sent_bits(s) / kBitsPerByte;
        traffic.boundary_bytes += boundary;
        traffic.averaging_bytes += seats_[s][c] * averaging;
        traffic.dollars += (boundary + seats_[s][c] * averaging) / kBytesPerGb *
                           question_.classes[c].egress_dollars_per_gb;
      }
    }
    return traffic;
  }

 private:
  double tensor_bits(const std::string& codec) const {
    const std::uint64_t elements = std::uint64_t{config_.batch.microbatch} *
                                   question_.model.sequence * question_.model.hidden_width();
    return kBitsPerByte *
           static_cast<double>(encoded_bytes(configured_codec(codec, config_.codec), elements,
                                             question_.model.shape.stream_dtype()));
  }
  // What a stage sends of a microbatch: activations on, their gradients back.
  double sent_bits(std::size_t s) const {
    return (s + 1 == cut_.size() ? 0 : tensor_bits(config_.codec.forward)) +
           (s == 0 ? 0 : tensor_bits(config_.codec.backward));
  }
  // Seconds of forward and backward of a microbatch.
  double work_seconds(std::size_t s, const FleetClass& c) const {
    const double flops = stage_flops(costs_, cut_[s]) * config_.batch.microbatch;
    const double again = config_.pipeline.recompute == Recompute::kAlways ? c.forward_share : 0;
    return faster_.of(FleetPart::kDevices) * flops / c.flops_per_second * (1 + again);
  }
  // Of these the weight gradients', half of a backward: they fill the device's pauses. The first
  // stage's source has its microbatch until they are added; who computes again adds at once.
  double later_seconds(std::size_t s, const FleetClass& c) const {
    if (s == 0 || config_.pipeline.recompute == Recompute::kAlways) return 0;
    return work_seconds(s, c) * (1 - c.forward_share) / 2;
  }
  double chance_of(std::size_t s, std::size_t c) const {
    if (config_.pipeline.wiring == WiringKind::kStatic)
      return static_cast<double>(seats_[s][c]) / peers_of(seats_[s]);
    double all = 0;
    for (std::size_t k = 0; k < seats_[s].size(); ++k)
      all += seats_[s][k] / work_seconds(s, question_.classes[k]);
    return seats_[s][c] / work_seconds(s, question_.classes[c]) / all;
  }

  void add_stations(std::size_t s) {
    const bool first = s == 0, last = s + 1 == cut_.size();
    const double bits = sent_bits(s);
    for (std::size_t c = 0; c < question_.classes.size(); ++c) {
      if (seats_[s][c] == 0) continue;
      const FleetClass& peer = question_.classes[c];
      const double chance = chance_of(s, c);
      const double later = later_seconds(s, peer);
      const double work = work_seconds(s, peer) - later;
      const double forward = work_seconds(s, peer) * peer.forward_share;
      const double uneven = 2 * forward / work - 1;  // a visit is (1 +- this) times the mean
      stations_.push_back({.stage = s,
                           .is_device = true,
                           .servers = seats_[s][c],
                           .chance = chance,
                           .visits = 2,
                           .service = work / 2,
                           .later = later,
                           .spread = uneven * uneven});
      if (bits > 0 && peer.bits_per_second > 0) {
        const double visits = (first ? 0 : 1) + (last ? 0 : 1);
        stations_.push_back(
            {.stage = s,
             .is_device = false,
             .servers = seats_[s][c],
             .chance = chance,
             .visits = visits,
             .service = faster_.of(FleetPart::kLinks) * bits / visits / peer.bits_per_second});
      }
      // Half of a hop's latency at each end; both ways over each boundary.
      const double ends = (first ? 0 : 2) + (last ? 0 : 2);
      delay_ += faster_.of(FleetPart::kLatency) * chance * ends * peer.latency_seconds / 2;
    }
  }

  // Schweitzer: what arrives sees the others' mean queues, and what is in service half done.
  void solve() {
    const double others = (in_flight_ - 1.0) / in_flight_;
    double bound = INFINITY;
    for (Station& station : stations_) {
      station.queue = in_flight_ / static_cast<double>(stations_.size()) / station.servers;
      bound = std::min(bound, station.servers / station.work());
    }
    for (int round = 0; round < kRoundsMax; ++round) {
      double trip = delay_ + kLeaseMessages * latency();
      for (Station& station : stations_) {
        const double flow = throughput_ * station.rate() / station.servers;
        const double busy = std::min(flow * station.service, 1.0) * others;
        const double waiting = std::max(station.queue * others - busy, 0.0);
        station.visit_seconds = station.service * (1 + waiting + busy * (1 + station.spread) / 2);
        // What is left of one that has begun in a pause.
        const double adding = throughput_ * station.chance / station.servers * station.later;
        station.visit_seconds += std::min(adding, 1.0 - busy) * station.later / 2;
        trip += station.rate() * station.visit_seconds;
      }
      const double before = throughput_;
      throughput_ = (before + std::min(in_flight_ / trip, bound)) / 2;
      for (Station& station : stations_) {
        const double flow = throughput_ * station.rate() / station.servers;
        station.queue = (station.queue + flow * station.visit_seconds) / 2;
      }
      if (std::abs(throughput_ - before) < kSettled * throughput_) break;
    }
  }

  // What the slowest peer of a stage works longer on a microbatch than the mean one.
  double excess_of_peers(std::size_t s) const {
    double most = 0, mean = 0;
    for (const Station& station : stations_) {
      if (station.stage != s || !station.is_device) continue;
      most = std::max(most, station.visits * station.service + station.later);
      mean += station.work();
    }
    return most - mean;
  }
  // Weight gradients that wait when the last gradient of an input has gone.
  double added_at_the_end() const {
    double most = 0;
    for (std::size_t s = 0; s < cut_.size(); ++s) {
      double mean = 0;
      for (const Station& station : stations_)
        if (station.stage == s) mean += station.chance * station.later;
      most = std::max(most, mean * (s + 1 == cut_.size() ? kAddedAtTheEndOfLast : kAddedAtTheEnd));
    }
    return most;
  }
  double latency() const {
    double sum = 0, peers = 0;
    for (const auto& stage : seats_) {
      for (std::size_t c = 0; c < stage.size(); ++c) {
        sum += stage[c] * question_.classes[c].latency_seconds;
        peers += stage[c];
      }
    }
    return faster_.of(FleetPart::kLatency) * sum / peers;
  }

  FleetStage stage(std::size_t s) const {
    FleetStage result{.stage = cut_[s], .seats = seats_[s]};
    for (const Station& station : stations_) {
      if (station.stage != s) continue;
      (station.is_device ? result.device_busy : result.link_busy) += throughput_ * station.work();
    }
    result.device_busy /= peers_of(seats_[s]);
    result.link_busy /= peers_of(seats_[s]);
    result.averaging_seconds = averaging_seconds(s);
    return result;
  }

  // A stage's gradient, as it is averaged.
  double parameter_bits(std::size_t s) const {
    const ParameterLayout layout = make_layout(question_.model, cut_[s]);
    return kBitsPerByte * static_cast<double>(encoded_bytes(
                              configured_codec(config_.codec.averaging, config_.codec),
                              layout.elements, layout.dtype));
  }
  // Every member sends its part of the others' slices, then its own slice's sum to all.
  double averaging_seconds(std::size_t s) const {
    const std::uint32_t members = peers_of(seats_[s]);
    if (members < 2) return 0;
    const double bits = parameter_bits(s);
    double slowest = 0, most_latency = 0;
    for (std::size_t c = 0; c < question_.classes.size(); ++c) {
      if (seats_[s][c] == 0) continue;
      const FleetClass& peer = question_.classes[c];
      if (peer.bits_per_second > 0) slowest = std::max(slowest, 1 / peer.bits_per_second);
      most_latency = std::max(most_latency, peer.latency_seconds);
    }
    return faster_.of(FleetPart::kAveraging) * 2 * bits * (members - 1) / members * slowest +
           2 * faster_.of(FleetPart::kLatency) * most_latency;
  }

  const FleetQuestion& question_;
  const RunConfig& config_;
  std::vector<StageSpec> cut_;
  Seats seats_;
  Faster faster_;
  ModelCosts costs_;
  std::vector<Station> stations_;
  double delay_ = 0;  // of a microbatch's round trip, without a queue
  std::uint32_t sources_ = 1;
  std::uint32_t microbatches_ = 1;
  std::uint32_t in_flight_ = 1;
  double throughput_ = 0;  // microbatches per second while they flow
};

// Where that part is busiest.
std::uint32_t busiest_stage(const std::vector<FleetStage>& stages, double FleetStage::* busy) {
  return std::ranges::max_element(stages, {}, busy)->stage.stage.value;
}

struct Seated {
  std::vector<StageSpec> cut;
  Seats seats;
};

Result<Seated> seated(const FleetQuestion& question) {
  const RunConfig& config = question.config;
  if (config.pipeline.order != OrderKind::kFree) {
    return fail(ErrorCode::kUserMistake,
                "pipeline.order: expected \"free\", the order that is predicted");
  }
  const ModelCosts costs = model_costs(question.model);
  auto cut = cut_layers(costs, {.stages = config.pipeline.stages,
                                .share_layers = config.model.share_layers,
                                .stage_speeds = {},
                                .layers = config.pipeline.layers});
  if (!cut) return std::unexpected(std::move(cut).error());
  auto seats = seats_of(question, *cut, stage_facts(*cut, costs, config.batch.microbatch));
  if (!seats) return std::unexpected(std::move(seats).error());
  return Seated{.cut = std::move(*cut), .seats = std::move(*seats)};
}

}  // namespace

Result<double> predict_tokens_per_second(const FleetQuestion& question) {
  const auto swarm = seated(question);
  if (!swarm) return std::unexpected(swarm.error());
  return Model(question, swarm->cut, swarm->seats, {}).predict().tokens_per_second;
}

Result<FleetTraffic> predict_traffic(const FleetQuestion& question) {
  const auto swarm = seated(question);
  if (!swarm) return std::unexpected(swarm.error());
  return Model(question, swarm->cut, swarm->seats, {}).traffic();
}

Result<FleetPrediction> predict_fleet(const FleetQuestion& question) {
  const auto swarm = seated(question);
  if (!swarm) return std::unexpected(swarm.error());

  FleetPrediction prediction = Model(question, swarm->cut, swarm->seats, {}).predict();
  for (const FleetPart part :
       {FleetPart::kDevices, FleetPart::kLinks, FleetPart::kLatency, FleetPart::kAveraging}) {
    const FleetPrediction with = Model(question, swarm->cut, swarm->seats, {part}).predict();
    const double gain = with.tokens_per_second / prediction.tokens_per_second - 1;
    if (gain <= prediction.bottleneck_gain) continue;
    prediction.bottleneck = part;
    prediction.bottleneck_gain = gain;
  }
  prediction.bottleneck_stage = busiest_stage(
      prediction.stages, prediction.bottleneck == FleetPart::kLinks ? &FleetStage::link_busy
                                                                    : &FleetStage::device_busy);
  return prediction;
}

}  // namespace swarmline
