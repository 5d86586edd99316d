#include "sim/scenario/simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "balancer/plan.h"
#include "base/hours.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"
#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/model_wrapper.h"
#include "sim/oracles/swarm_oracles.h"

namespace swarmline {
namespace {

constexpr std::uint32_t kSamples = 240;  // of a scenario
constexpr Duration kFormingMax = std::chrono::hours(1);
constexpr double kStandInLearningRate = 1e-9;  // so that its numbers stay what they are
constexpr Duration kLookedAtEach = std::chrono::minutes(5);
constexpr std::size_t kLogMax = 10'000;
constexpr double kPartPatience = 8;            // times what a part takes alone on the slowest link
constexpr double kStatePieceSecondsMax = 150;  // alone on it: a quarter of net.build_seconds

// The stand-in, and how often each step was computed on.
class CountingModel final : public ModelWrapper {
 public:
  CountingModel(std::unique_ptr<StageModel> model, std::map<std::uint64_t, std::uint64_t>& passes)
      : ModelWrapper(std::move(model)), passes_(passes) {}

  Result<ForwardOutput> forward(const ForwardInput& input) override {
    ++passes_[input.id.microbatch.phase.step];
    return ModelWrapper::forward(input);
  }
  Result<BackwardOutput> backward(const BackwardInput& input) override {
    ++passes_[input.id.microbatch.phase.step];
    return ModelWrapper::backward(input);
  }

 private:
  std::map<std::uint64_t, std::uint64_t>& passes_;
};

class Simulation {
 public:
  Simulation(const Scenario& scenario, ScenarioCosts costs);
  Result<ScenarioResult> run(const std::function<void(double)>& on_progress);

 private:
  SimClusterOptions cluster_options();
  void watch_frames();
  Knobs knobs_for_its_links() const;
  SimPeer machine_of(std::size_t kind) const;
  std::size_t add_machine(std::size_t kind) { return cluster_->add_peer(machine_of(kind)); }
  // Everything that comes, goes and breaks, from now on.
  void schedule();
  void schedule_fleet();
  void on_fleet(const FleetEvent& event);
  void take(std::size_t peer);
  void at(double seconds, std::function<void()> fn);
  double optimum();
  void sample(double from, double seconds);
  double steps_until(double seconds) const;
  ScenarioResult finish();
  const MachineKind& kind_of_peer(std::size_t peer) const {
    return scenario_.machines[cluster_->machine(peer).kind];
  }
  double seconds() const { return to_seconds(cluster_->elapsed() - start_); }

  const Scenario& scenario_;
  ScenarioCosts costs_;
  const TurnedKnobs knobs_;
  std::vector<std::size_t> first_;  // kinds of who is there from the beginning
  std::size_t fleet_kind_ = 0;
  std::unique_ptr<SimCluster> cluster_;
  std::unique_ptr<SwarmOracles> oracles_;
  std::unique_ptr<FaultInjector> injector_;
  std::unique_ptr<RandomFaults> random_;
  Rng leavers_;
  std::set<std::size_t> fleet_peers_;           // that the fleet has not taken yet
  std::map<std::uint32_t, std::size_t> nodes_;  // of the fleet -> peer
  bool trains_ = false;
  Duration start_{};
  double start_wall_ = 0;
  std::map<std::uint64_t, std::uint64_t> passes_;  // by step
  std::vector<double> commits_;                    // when, by step
  // Speeds and how many of each: what optimum_ is of.
  std::map<double, std::uint32_t> seated_;
  double optimum_ = 0;
  ScenarioResult result_;
};

Simulation::Simulation(const Scenario& scenario, ScenarioCosts costs)
    : scenario_(scenario),
      costs_(std::move(costs)),
      knobs_(knobs_for_its_links()),
      leavers_(Rng(scenario.seed).split("leavers")) {
  for (std::size_t kind = 0; kind < scenario.machines.size(); ++kind) {
    const MachineKind& machine = scenario.machines[kind];
    if (machine.join_seconds == 0) first_.insert(first_.end(), machine.count, kind);
    if (machine.name == scenario.fleet_machine) fleet_kind_ = kind;
  }
  for (std::uint32_t i = 0; i < scenario.fleet_at_start(); ++i) {
    fleet_peers_.insert(first_.size());
    first_.push_back(fleet_kind_);
  }
  cluster_ = std::make_unique<SimCluster>(cluster_options());
  oracles_ = std::make_unique<SwarmOracles>(*cluster_, SwarmOracles::Pace{.each = kLookedAtEach});
  watch_frames();
}

// A part of a checkpoint is one message here, and a state one or a few: what waits for one must not
// give up while it is on its way.
Knobs Simulation::knobs_for_its_links() const {
  Knobs turned = knobs();
  double rate = 0;  // bytes/s of the slowest link
  for (const MachineKind& machine : scenario_.machines)
    for (const double bits : {machine.up_bits, machine.down_bits})
      if (bits > 0) rate = rate > 0 ? std::min(rate, bits / 8) : bits / 8;
  if (rate == 0) return turned;
  const Duration part =
      from_seconds(kPartPatience * static_cast<double>(costs_.checkpoint_bytes()) / rate);
  turned.coordinator_answer = std::max(turned.coordinator_answer, part);
  turned.checkpoint_progress = std::max(turned.checkpoint_progress, part);
  const double pieces =
      std::ceil(static_cast<double>(costs_.state_bytes()) / rate / kStatePieceSecondsMax);
  if (pieces > 1)
    turned.state_piece_bytes =
        static_cast<std::uint32_t>(static_cast<double>(costs_.stand_in_state_bytes()) / pieces) + 1;
  return turned;
}

SimPeer Simulation::machine_of(std::size_t kind) const {
  const MachineKind& machine = scenario_.machines[kind];
  SimPeer peer;
  peer.kind = kind;
  peer.jitter = machine.jitter;
  peer.zone = machine.zone;
  if (machine.up_bits > 0)
    peer.card = {.up_bytes_per_second = machine.up_bits / 8,
                 .down_bytes_per_second = machine.down_bits / 8};
  return peer;
}

SimClusterOptions Simulation::cluster_options() {
  SimClusterOptions options;
  options.config = costs_.stand_in();
  options.config.optimizer.lr = kStandInLearningRate;
  options.config.optimizer.schedule = LearningSchedule::kConstant;
  options.vocab = options.config.model.vocab;
  options.seed = scenario_.seed;
  options.link = scenario_.link;
  options.coordinator_zone = scenario_.coordinator_zone;
  if (scenario_.zone_links)
    options.link_between = [this](const std::string& from, const std::string& to) {
      return scenario_.zone_links->between(from, to);
    };
  options.make_model =
      [this](const ModelSpec& spec, const StageSpec& stage,
             const StageModelOptions& model_options) -> Result<std::unique_ptr<StageModel>> {
    auto model = make_fake_model(spec, stage, model_options);
    if (!model) return model;
    return std::make_unique<CountingModel>(std::move(*model), passes_);
  };
  options.keep_log_lines = false;
  options.service = [this](const SimPeer& machine, StageId stage, JobKind kind) {
    return costs_.service(scenario_.machines[machine.kind], stage, kind);
  };
  options.charged_bytes = [this](SimNodeId from, SimNodeId, const Frame& frame) {
    if (frame.payload.empty()) return frame.wire_bytes();
    return costs_.charge(cluster_->stage_of(from), frame);
  };
  // A stage's part, which is sent piece by piece.
  options.stands_for_many = [](const Frame& frame) {
    return kind_of(frame) == MessageKind::kCheckpointPiece;
  };
  std::vector<std::uint32_t>& seats = options.config.pipeline.peers;
  const std::uint32_t stages = costs_.stages();
  if (!scenario_.seats_given)
    for (std::uint32_t s = 0; s < stages; ++s)
      seats[s] = static_cast<std::uint32_t>((first_.size() + stages - 1 - s) / stages);
  for (const std::size_t kind : first_) options.peers.push_back(machine_of(kind));
  return options;
}

void Simulation::watch_frames() {
  cluster_->network().set_filter([this](SimNodeId from, SimNodeId, const Frame& frame) {
    if (from != kCoordinatorNode) return FrameFate{};
    const MessageKind kind = kind_of(frame);
    if (kind == MessageKind::kMembership) costs_.on_membership(frame);
    if (kind == MessageKind::kSeal) costs_.on_seal(frame);
    if (kind == MessageKind::kOpenPhase) trains_ = true;
    if (kind == MessageKind::kCommit)
      if (const auto commit = parse<wire::Commit>(frame);
          commit && commit->step() == commits_.size())
        commits_.push_back(seconds());
    return FrameFate{};
  });
  cluster_->network().set_tap([this](SimNodeId from, SimNodeId, const Frame& frame) {
    oracles_->look();
    if (frame.payload.empty()) {
      result_.traffic.control += static_cast<double>(frame.wire_bytes());
    } else {
      costs_.count(cluster_->stage_of(from), frame, result_.traffic);
    }
  });
}

void Simulation::at(double seconds, std::function<void()> fn) {
  cluster_->runtime().node(kWorldNode).call_after(from_seconds(seconds), std::move(fn));
}

void Simulation::schedule() {
  // Machines beyond the seats that the run starts with.
  while (cluster_->peers() < first_.size()) add_machine(first_[cluster_->peers()]);
  for (std::size_t kind = 0; kind < scenario_.machines.size(); ++kind)
    if (const MachineKind& late = scenario_.machines[kind]; late.join_seconds > 0)
      at(late.join_seconds, [this, kind, &late] {
        for (std::uint32_t i = 0; i < late.count; ++i) add_machine(kind);
      });
  for (const TimedFault& timed : scenario_.faults)
    at(timed.seconds, [this, &timed] {
      // A machine that has not come yet has no faults.
      if (std::max(timed.fault.node, timed.fault.other) <= cluster_->peers())
        injector_->apply(timed.fault);
    });
  if (scenario_.fleet) schedule_fleet();
  random_->on_training();
  random_->start();
}

void Simulation::schedule_fleet() {
  // Who is there at the beginning has a name, too.
  std::set<std::uint32_t> there;
  for (const FleetEvent& event : scenario_.fleet->events) {
    const double after = event.seconds - scenario_.fleet_from_seconds;
    if (after > 0) {
      at(after, [this, &event] { on_fleet(event); });
      continue;
    }
    for (const auto node : event.removed) there.erase(node);
    there.insert(event.added.begin(), event.added.end());
  }
  auto peer = fleet_peers_.begin();
  for (const auto node : there) nodes_[node] = *peer++;
}

void Simulation::on_fleet(const FleetEvent& event) {
  const auto come = [this] {
    const std::size_t peer = add_machine(fleet_kind_);
    fleet_peers_.insert(peer);
    return peer;
  };
  for (const auto node : event.removed) take(nodes_.at(node));
  for (const auto node : event.added) nodes_[node] = come();
  if (scenario_.fleet->names_nodes) return;
  while (fleet_peers_.size() > event.count)
    take(*std::next(fleet_peers_.begin(),
                    static_cast<std::ptrdiff_t>(leavers_.below(fleet_peers_.size()))));
  while (fleet_peers_.size() < event.count) come();
}

void Simulation::take(std::size_t peer) {
  fleet_peers_.erase(peer);
  if (!cluster_->is_running(peer)) return;
  const SimNodeId node = SimCluster::node_of_peer(peer);
  const auto gone = [this, node] { cluster_->network().kill(node); };
  if (scenario_.notice_seconds == 0) return gone();
  injector_->apply(
      {.kind = FaultKind::kDrain, .node = node, .time = from_seconds(scenario_.notice_seconds)});
  at(scenario_.notice_seconds, gone);
}

double Simulation::optimum() {
  std::map<double, std::uint32_t> speeds;
  for (std::size_t peer = 0; peer < cluster_->peers(); ++peer) {
    if (!cluster_->is_running(peer) ||
        cluster_->runtime().is_frozen(SimCluster::node_of_peer(peer)))
      continue;
    const MachineKind& kind = kind_of_peer(peer);
    const double speed =
        kind.flops > 0 ? kind.flops : 1 / (kind.forward_seconds + kind.backward_seconds);
    ++speeds[speed / cluster_->device(peer).slowness()];
  }
  if (speeds == seated_) return optimum_;
  seated_ = std::move(speeds);
  PlanSnapshot snapshot;
  const bool timed = scenario_.machines.front().flops == 0;
  for (std::uint16_t s = 0; s < costs_.stages(); ++s)
    snapshot.stages.push_back({.cost = timed ? 1 : costs_.stage_work(StageId{s})});
  std::uint32_t id = 0;
  for (const auto& [speed, count] : seated_)
    for (std::uint32_t i = 0; i < count; ++i)
      snapshot.peers.push_back({.peer = PeerId{++id}, .speed = speed});
  optimum_ = snapshot.peers.size() < snapshot.stages.size() ? 0 : best_throughput(snapshot);
  return optimum_;
}

void Simulation::sample(double from, double until) {
  ScenarioSample sample;
  const double span = until - from;
  sample.seconds = until;
  sample.optimum = optimum();
  for (const auto& [speed, count] : seated_) sample.machines += count;
  result_.optimal_microbatches += sample.optimum * span;
  if (sample.optimum == 0) result_.seconds_without_optimum += span;
  for (std::size_t peer = 0; peer < cluster_->peers(); ++peer) {
    if (!cluster_->is_running(peer)) continue;
    result_.machine_hours += span / kSecondsPerHour;
    result_.dollars += kind_of_peer(peer).price * span / kSecondsPerHour;
  }
  result_.peak_machines = std::max(result_.peak_machines, sample.machines);
  result_.samples.push_back(sample);
}

// A step counts evenly over the time since the one before it.
double Simulation::steps_until(double seconds) const {
  const auto next = std::ranges::upper_bound(commits_, seconds);
  if (next == commits_.end()) return std::numeric_limits<double>::quiet_NaN();
  const double before = next == commits_.begin() ? 0 : *std::prev(next);
  return static_cast<double>(next - commits_.begin()) + (seconds - before) / (*next - before);
}

Result<ScenarioResult> Simulation::run(const std::function<void(double)>& on_progress) {
  const auto ended = [this] { return cluster_->outcome().has_value(); };
  if (!cluster_->run_until([&] { return trains_ || ended(); }, kFormingMax) || ended()) {
    return fail(ErrorCode::kRefused,
                ended() ? cluster_->outcome()->sentence
                        : fmt::format("the swarm does not form within {:.0f} virtual seconds",
                                      to_seconds(kFormingMax)));
  }
  start_ = cluster_->elapsed();
  start_wall_ = cluster_->runtime().node(kWorldNode).wall_seconds();
  injector_ = std::make_unique<FaultInjector>(*cluster_);
  random_ = std::make_unique<RandomFaults>(*cluster_, *injector_, scenario_.random,
                                           Rng(scenario_.seed).split("faults"));
  schedule();
  const double guess = static_cast<double>(scenario_.run.run.steps) *
                       scenario_.run.microbatches_per_step() / std::max(optimum(), 1e-9);
  const double span = (scenario_.seconds > 0 ? scenario_.seconds : guess) / kSamples;
  while (!ended() && (scenario_.seconds == 0 || result_.samples.size() < kSamples)) {
    const double from = static_cast<double>(result_.samples.size()) * span;
    cluster_->run_until(ended, start_ + from_seconds(from + span) - cluster_->elapsed());
    sample(from, ended() ? seconds() : from + span);
    if (on_progress)
      on_progress(std::min(1.0, static_cast<double>(result_.samples.size()) / kSamples));
  }
  return finish();
}

ScenarioResult Simulation::finish() {
  const std::uint64_t microbatches = scenario_.run.microbatches_per_step();
  result_.name = scenario_.name;
  if (const auto& outcome = cluster_->outcome()) {
    result_.ended_badly = outcome->exit_code != 0;
    result_.sentence = outcome->sentence;
  }
  result_.seconds = result_.samples.back().seconds;
  result_.steps = commits_.size();
  result_.microbatches = result_.steps * microbatches;
  result_.tokens = result_.steps * scenario_.run.tokens_per_step();
  double before = 0, done_before = 0;
  for (ScenarioSample& sample : result_.samples) {
    const double done = steps_until(sample.seconds);
    sample.throughput = (done - done_before) * static_cast<double>(microbatches) /
                        std::max(sample.seconds - before, 1e-9);
    before = sample.seconds;
    done_before = done;
  }
  for (const auto& [step, passes] : passes_)
    if (step < result_.steps) result_.passes_done += passes;
  result_.passes_counted = 2 * costs_.stages() * result_.microbatches;
  oracles_->look_all();
  for (const OracleFinding& finding : oracles_->findings())
    result_.findings.push_back(fmt::format("{:.3f} s: {}: {}", to_seconds(finding.when),
                                           to_string(finding.rule), finding.what));
  result_.faults = injector_->counts();
  result_.log = injector_->history();
  for (const EventRecord& event : *cluster_->journal().events(kLogMax)) {
    if (event.wall_seconds < start_wall_) continue;
    result_.joined += event.kind == "peer_joined";
    result_.moved += event.kind == "peer_moves";
    result_.lost += event.kind == "peer_lost";
    result_.left += event.kind == "peer_left" || event.kind == "peer_refused";
    result_.log.push_back(fmt::format("{:.3f} s: {}: {}", event.wall_seconds - start_wall_,
                                      event.kind, event.detail));
  }
  result_.parameters = costs_.parameters();
  result_.boundary_bytes = costs_.boundary_bytes();
  result_.events = cluster_->runtime().events();
  result_.trace_hash = cluster_->trace_hash();
  return std::move(result_);
}

}  // namespace

Result<ScenarioResult> simulate(const Scenario& scenario,
                                const std::function<void(double)>& on_progress) {
  auto costs = ScenarioCosts::make(scenario);
  if (!costs) return std::unexpected(costs.error());
  return Simulation(scenario, std::move(*costs)).run(on_progress);
}

}  // namespace swarmline
