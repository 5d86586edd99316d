#include "sim/seeds/swarm_seed.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "pipeline/protocol/message_kinds.h"
#include "sim/cluster/fake_stage_model.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kEventsShown = 200;
constexpr std::uint32_t kManyPeers = 18;
constexpr std::uint64_t kLongFaultsOneIn = 2;  // seeds
constexpr std::uint64_t kLongKindsMax = 3;

template <typename T>
T one_of(Rng& rng, std::initializer_list<T> choices) {
  return choices.begin()[rng.below(choices.size())];
}
bool once_in(Rng& rng, std::uint64_t n) {
  return rng.below(n) == 0;
}

// What each stage's committed state digests to, by version, without faults.
using Digests = std::map<std::pair<StageId, std::uint64_t>, std::uint64_t>;

// One run under watch.
class Watch {
 public:
  Watch(const SimClusterOptions& options, const Digests* wanted, Duration patience = {},
        const SeedTap& on_frame = {})
      : cluster_(options),
        oracles_(cluster_, SwarmOracles::Pace{.patience = patience}),
        wanted_(wanted) {
    cluster_.network().set_filter([this](SimNodeId from, SimNodeId, const Frame& frame) {
      if (from == kCoordinatorNode && kind_of(frame) == MessageKind::kCommit) on_commit(frame);
      if (from == kCoordinatorNode && kind_of(frame) == MessageKind::kWelcome) on_welcome(frame);
      trains_ = trains_ || kind_of(frame) == MessageKind::kOpenPhase;
      return FrameFate{};
    });
    cluster_.network().set_tap([this, on_frame](SimNodeId from, SimNodeId to, const Frame& frame) {
      if (on_frame) on_frame(cluster_.elapsed(), from, to, frame);
      if (to != kCoordinatorNode) return;
      if (kind_of(frame) == MessageKind::kStepped) on_state(parse<wire::Stepped>(frame));
      if (kind_of(frame) == MessageKind::kReady) on_state(parse<wire::Ready>(frame));
    });
  }

  SimCluster& cluster() { return cluster_; }
  const Digests& digests() const { return digests_; }
  SwarmOracles& oracles() { return oracles_; }
  bool trains() const { return trains_; }
  const std::string& violation() const { return violation_; }
  void violate(std::string what) {
    if (violation_.empty())
      violation_ = fmt::format("{:.6f} s: {}", to_seconds(cluster_.elapsed()), what);
  }

  // True when `done()`; false after `limit`, or when something is violated.
  bool run_until(const std::function<bool()>& done, Duration limit) {
    const bool ended = cluster_.run_until(
        [&] {
          if (cluster_.has_coordinator()) cluster_.coordinator().check_invariants();
          for (std::size_t i = 0; i < cluster_.peers(); ++i) cluster_.peer(i).check_invariants();
          if (cluster_.coordinators_killed() > killed_) on_power_cut();
          oracles_.look();
          return !violation_.empty() || done();
        },
        limit);
    return ended && violation_.empty();
  }

 private:
  // The newest commit that the journal has; 0: none.
  std::uint64_t journaled() {
    const auto last = cluster_.journal().last_commit();
    return *last ? (*last)->version : 0;
  }
  void on_commit(const Frame& frame) {
    const auto commit = parse<wire::Commit>(frame);
    announced_ = commit->step() + 1;
    announced_commits_ = cluster_.journal().commits();
    // One that comes late over a slow link may be older than what the journal has by then.
    if (const std::uint64_t newest = journaled(); newest < announced_)
      violate(fmt::format("commit {} is announced and the journal has {}", announced_, newest));
  }
  void on_welcome(const Frame& frame) {
    if (const auto welcome = parse<wire::Welcome>(frame); welcome->has_seat())
      seats_.insert(from_wire(welcome->seat()));
  }
  // It, a later one of the same peer, or that nobody gets the number of a peer that is forgotten.
  bool is_journaled(const Seat& seat) {
    const auto kept = cluster_.journal().seats();
    const auto newest = std::find_if(kept->rbegin(), kept->rend(), [&](const SeatRecord& record) {
      return record.seat.peer == seat.peer;
    });
    if (newest != kept->rend()) return newest->seat.incarnation >= seat.incarnation;
    const auto forgotten = cluster_.journal().get_meta("newest_peer");
    return *forgotten && std::stoull(**forgotten) >= seat.peer.value;
  }
  // What anybody heard of was synced before.
  void on_power_cut() {
    killed_ = cluster_.coordinators_killed();
    if (cluster_.journal().commits() < announced_commits_)
      violate(
          fmt::format("commit {} was announced, and is lost with what was not synced", announced_));
    for (const Seat& seat : seats_)
      if (!is_journaled(seat))
        violate(fmt::format("{} was given, and is lost with what was not synced", to_string(seat)));
  }
  template <typename Message>
  void on_state(const Result<Message>& message) {
    const Seat seat = from_wire(message->seat());
    const auto key = std::pair(seat.stage, message->version());
    if (wanted_ == nullptr) {
      digests_[key] = message->state_digest();
    } else if (wanted_->at(key) != message->state_digest()) {
      violate(fmt::format("{} holds other bits at version {} than the run without faults",
                          to_string(seat), message->version()));
    }
  }

  SimCluster cluster_;
  SwarmOracles oracles_;
  const Digests* wanted_;
  Digests digests_;
  std::string violation_;
  bool trains_ = false;
  std::uint64_t killed_ = 0;  // coordinators
  std::uint64_t announced_ = 0;
  std::uint64_t announced_commits_ = 0;  // that the journal had when one was announced last
  std::set<Seat> seats_;
};

// The same cut with one peer a stage and no faults: no choice, no averaging.
struct Reference {
  Digests digests;
  Duration time;  // that it took
};
Reference run_reference(SimClusterOptions options) {
  std::ranges::fill(options.config.pipeline.peers, 1U);
  for (SimPeer& peer : options.peers) peer.control = {};
  Watch watch(options, nullptr);
  const bool ended = watch.run_until([&] { return watch.cluster().outcome().has_value(); }, 3600s);
  SWARMLINE_CHECK_MSG(ended && watch.cluster().outcome()->exit_code == 0,
                      "the run without faults: " + watch.cluster().coordinator().status_json());
  return {watch.digests(), watch.cluster().elapsed()};
}

RunConfig draw_config(Rng rng) {
  RunConfig config;
  config.run.steps = 6 + rng.below(20);
  config.run.seed = 7;
  config.model.layers = 4;
  // Of the wider one every stage's parameters are several slices of an average.
  config.model.d_model = one_of<std::uint32_t>(rng, {8, 8, 8, 48});
  config.model.heads = 2;
  config.model.dtype = DType::kF64;
  config.model.tied_embeddings = once_in(rng, 2);
  config.data.files = {"synthetic"};
  config.batch = {
      .batch = 8 * static_cast<std::uint32_t>(1 + rng.below(4)), .microbatch = 2, .sequence = 4};
  config.optimizer.lr = 1e-2;
  config.pipeline.stages = static_cast<std::uint32_t>(1 + rng.below(4));
  config.pipeline.peers.clear();
  for (std::uint32_t s = 0; s < config.pipeline.stages; ++s)
    config.pipeline.peers.push_back(static_cast<std::uint32_t>(1 + rng.below(4)));
  config.pipeline.peers[rng.below(config.pipeline.stages)] += 1;
  if (once_in(rng, 16)) {  // more than a sender may know
    config.pipeline.peers[rng.below(config.pipeline.stages)] += kManyPeers;
    config.run.steps = 6;
  }
  config.balance.moves = !once_in(rng, 4);
  config.balance.period_seconds = one_of(rng, {0.1, 1.0, 60.0});
  config.pipeline.delay = static_cast<std::uint32_t>(rng.below(2));
  config.pipeline.in_flight = one_of<std::uint32_t>(rng, {0, 0, 4, 8});
  if (once_in(rng, 8)) config.pipeline.wiring = WiringKind::kStatic;
  if (once_in(rng, 4)) {
    config.codec.forward = "fp16";
    config.codec.backward = "lin8";
    config.codec.stochastic = once_in(rng, 2);
  }
  config.wiring.hop_timeout_seconds = one_of(rng, {0.3, 1.0, 5.0});
  config.wiring.in_flight_per_peer = one_of<std::uint32_t>(rng, {2, 8});
  if (once_in(rng, 4)) config.checkpoint.every_steps = 3;
  if (once_in(rng, 4)) config.eval.every_steps = 4;
  if (once_in(rng, 8)) config.net.admit_bytes = 1;
  config.net.heartbeat_seconds = one_of(rng, {0.05, 0.5});
  Rng shadows = rng.split("shadows");
  if (once_in(shadows, 3))
    config.balance.shadows =
        one_of<ShadowsPerStage>(shadows, {kShadowsAuto, {.count = 1}, {.count = 1}, {.count = 2}});
  return config;
}

SimLink draw_link(Rng rng) {
  return {.latency = one_of<Duration>(rng, {200us, 1ms, 20ms}),
          .jitter = one_of<Duration>(rng, {0ms, 0ms, 1ms, 10ms}),
          .bytes_per_second = one_of(rng, {0.0, 0.0, 50e6})};
}

// How long the coordinator waits before it takes a silent peer for lost; links alone never make one
// that silent.
Duration draw_silence(Rng& rng, RunConfig& config, const SimLink& link) {
  const Duration beat = from_seconds(config.net.heartbeat_seconds);
  const Duration safe = 5 * beat + 2 * link.latency + 50 * link.jitter;
  if (beat >= 500ms && once_in(rng, 2)) return 5 * beat;  // as its heartbeats come
  config.net.peer_silence_seconds = to_seconds(safe);
  return safe;
}

std::string shadows_text(ShadowsPerStage shadows) {
  return shadows.automatic ? "auto" : fmt::format("{}", shadows.count);
}

std::string summary_of(const SeedScenario& scenario) {
  const RunConfig& config = scenario.swarm.config;
  const Duration control = scenario.swarm.peers.front().control;
  std::vector<std::string_view> kinds;
  for (const FaultKind kind : scenario.faults.kinds) kinds.push_back(to_string(kind));
  return fmt::format(
      "{} steps of {} microbatches, peers {}, shadows {}, delay {}, width {}{}, {} faults of "
      "{{{}}} every {:.3g} s{}{}{}{}",
      config.run.steps, config.microbatches_per_step(), fmt::join(config.pipeline.peers, "+"),
      shadows_text(config.balance.shadows), config.pipeline.delay, config.model.d_model,
      config.model.tied_embeddings ? " tied" : "", scenario.faults.count, fmt::join(kinds, " "),
      to_seconds(scenario.faults.gap), scenario.faults_at_once ? " from the beginning" : "",
      control == Duration{} ? "" : fmt::format("; control jobs of {:.3g} s", to_seconds(control)),
      scenario.knobs.words.empty() ? "" : "; knobs: ", scenario.knobs.words);
}

// Streams of their own: a seed's other draws are the same with and without.
void draw_extras(const Rng& root, const SeedExtras& extras, SeedScenario& scenario) {
  Rng kinds = root.split("long faults");
  if (!extras.kinds.empty() && once_in(kinds, kLongFaultsOneIn)) {
    for (std::uint64_t i = 0, some = 1 + kinds.below(kLongKindsMax); i < some; ++i) {
      const FaultKind kind = extras.kinds[kinds.below(extras.kinds.size())];
      if (std::ranges::find(scenario.faults.kinds, kind) == scenario.faults.kinds.end())
        scenario.faults.kinds.push_back(kind);
    }
    // Whoever is stopped for minutes is not what is tried here.
    scenario.swarm.config.net.coordinator_patience_seconds = 3600;
    for (SimPeer& peer : scenario.swarm.peers) peer.join_patience_seconds = 3600;
    scenario.patience = kLongLivenessTime;
  }
  Rng last = root.split("hits last");
  scenario.faults.hits_last = extras.hits_last && once_in(last, 2);
  Rng times = root.split("control times");
  if (!extras.control_times || once_in(times, 2)) return;
  // A job as long as two hop timeouts counts as a device that hangs.
  const Duration most = from_seconds(scenario.swarm.config.wiring.hop_timeout_seconds / 8);
  const auto mean = std::min(most, one_of<Duration>(times, {1ms, 5ms, 40ms, 300ms}));
  for (SimPeer& peer : scenario.swarm.peers) peer.control = mean;
  scenario.swarm.checkpoint_read = one_of<Duration>(times, {0ms, 100ms, 5s});
  scenario.patience += kLongLivenessTime;
}

// The scenario once; fills in what it saw.
void run_once(const SeedScenario& scenario, const Reference& reference, SeedOutcome& outcome,
              const SeedTap& on_frame = {}) {
  const Duration waits = kLivenessWaits * scenario.knobs.patience;
  Watch watch(scenario.swarm, &reference.digests, waits, on_frame);
  SimCluster& cluster = watch.cluster();
  FaultInjector injector(cluster);
  RandomFaults faults(cluster, injector, scenario.faults, Rng(scenario.swarm.seed).split("faults"));
  const auto ended = [&] { return cluster.outcome().has_value(); };
  const Duration formed = scenario.faults_at_once ? 3600s : scenario.patience + waits;
  if (scenario.faults_at_once) faults.start();
  if (!watch.run_until([&] { return watch.trains(); }, formed))
    watch.violate("the swarm does not form: " + cluster.coordinator().status_json());
  faults.on_training();
  if (!scenario.faults_at_once) faults.start();
  const bool calm =
      watch.run_until([&] { return ended() || (faults.over() && injector.healed()); }, 3600s);
  if (!calm) watch.violate("the faults do not end");
  const Duration patience = scenario.patience + kLivenessRuns * reference.time + waits;
  if (!watch.run_until(ended, patience))
    watch.violate(fmt::format(
        "no end within {:.0f} s after the last fault: {}", to_seconds(patience),
        cluster.has_coordinator() ? cluster.coordinator().status_json() : "nobody leads"));
  if (ended() && cluster.outcome()->exit_code != 0)
    watch.violate("the run failed: " + cluster.outcome()->sentence);
  if (ended() && cluster.checkpoint().version() != scenario.swarm.config.run.steps)
    watch.violate("it ended without a checkpoint of what it ended with");
  watch.oracles().look_all();
  outcome.findings = watch.oracles().findings();
  for (const OracleFinding& finding : outcome.findings)
    if (scenario.rules.contains(finding.rule))
      watch.violate(fmt::format("{} at {:.6f} s: {}", to_string(finding.rule),
                                to_seconds(finding.when), finding.what));
  outcome.violation = watch.violation();
  outcome.history = injector.history();
  for (const EventRecord& event : *cluster.journal().events(kEventsShown))
    outcome.events.push_back(event.kind + ": " + event.detail);
  outcome.faults = injector.counts();
  outcome.steps += cluster.runtime().events();
  outcome.virtual_seconds = to_seconds(cluster.elapsed());
  outcome.trace_hash = cluster.trace_hash();
}

// How its journal does, and what happens to it: in one seed of four.
void draw_journal(Rng rng, SeedScenario& scenario) {
  if (!once_in(rng, 4)) return;
  scenario.swarm.journal_time = one_of<Duration>(rng, {0ms, 1ms, 5ms, 30ms});
  if (once_in(rng, 2)) scenario.swarm.lease = one_of<Duration>(rng, {200ms, 1s, 5s});
  for (const FaultName& kind : kFaultKinds)
    if (is_of_journal(kind.kind) && (once_in(rng, 2) || (kind.kind == FaultKind::kStoreCut &&
                                                         scenario.swarm.lease > Duration{})))
      scenario.faults.kinds.push_back(kind.kind);
}

}  // namespace

SeedExtras usual_extras() {
  return {.kinds = {FaultKind::kStall, FaultKind::kPowerLoss, FaultKind::kHalfOpen,
                    FaultKind::kHalfWay, FaultKind::kIsolate, FaultKind::kFull, FaultKind::kDeaf},
          .control_times = true};
}

SeedExtras all_extras() {
  SeedExtras extras{
      .kinds = {}, .hits_last = true, .control_times = true, .rules = all_oracle_rules()};
  for (const FaultName& kind : kFaultKinds)
    if (kind.on_request) extras.kinds.push_back(kind.kind);
  return extras;
}

SeedScenario scenario_of(std::uint64_t seed, const SeedExtras& extras) {
  const Rng root(seed);
  SeedScenario scenario;
  SimClusterOptions& swarm = scenario.swarm;
  swarm.seed = seed;
  swarm.config = draw_config(root.split("config"));
  swarm.link = draw_link(root.split("link"));
  swarm.make_model = make_fake_model;
  Rng rng = root.split("scenario");
  if (swarm.config.eval.every_steps > 0) swarm.eval_sequences = 4;
  scenario.faults_at_once = once_in(rng, 2);
  for (std::uint32_t i = 0; i < 32; ++i) {
    const auto work = 1ms * static_cast<int>(1 + rng.below(8));
    swarm.peers.push_back(
        {.forward = work, .backward = 2 * work, .jitter = once_in(rng, 2) ? 0.3 : 0});
  }
  const Duration silence = draw_silence(rng, swarm.config, swarm.link);
  RandomFaultOptions& faults = scenario.faults;
  for (const FaultName& kind : kFaultKinds)
    if (kind.kind != FaultKind::kCorrupt && !kind.on_request && !hits_disk(kind.kind) &&
        !is_of_journal(kind.kind) && once_in(rng, 2))
      faults.kinds.push_back(kind.kind);
  Rng damage = root.split("damage");  // of its own: the other draws are older
  if (once_in(damage, 4)) faults.kinds.push_back(FaultKind::kCorrupt);
  Rng disk = root.split("disk");
  for (const FaultName& kind : kFaultKinds) {
    if (!hits_disk(kind.kind) || !once_in(disk, 8)) continue;
    faults.kinds.push_back(kind.kind);
    // Something has to be written meanwhile.
    if (swarm.config.checkpoint.every_steps == 0)
      swarm.config.checkpoint.every_steps = 1 + disk.below(3);
  }
  draw_journal(root.split("journal"), scenario);
  if (faults.kinds.empty()) faults.kinds.push_back(FaultKind::kKill);
  faults.count = 2 + rng.below(24);
  faults.gap = one_of<Duration>(rng, {5ms, 50ms, 300ms});
  faults.time_max = 3 * silence;
  faults.grace = silence + 1s;
  faults.machines_min = swarm.config.pipeline.stages;
  if (!swarm.config.balance.shadows.none()) faults.shadowed_stages = swarm.config.pipeline.stages;
  scenario.knobs = draw_knobs(root.split("knobs"));
  Rng shared = root.split("shared folder");
  const std::uint64_t sees = shared.below(4);               // nobody, nobody, everybody, some
  if (sees >= 2) scenario.knobs.knobs.part_bytes_min = 64;  // small stages in parts, too
  for (SimPeer& peer : swarm.peers)
    peer.sees_checkpoints = sees == 2 || (sees == 3 && once_in(shared, 2));
  draw_extras(root, extras, scenario);
  scenario.rules = extras.rules;
  scenario.summary = summary_of(scenario);
  return scenario;
}

SeedOutcome run_scenario(const SeedScenario& scenario, const SeedTap& on_frame) {
  SeedOutcome outcome;
  outcome.summary = scenario.summary;
  const TurnedKnobs turned(scenario.knobs.knobs);
  const Reference reference = run_reference(scenario.swarm);
  run_once(scenario, reference, outcome, on_frame);
  if (!outcome.violation.empty()) return outcome;
  const std::uint64_t first = outcome.trace_hash;
  run_once(scenario, reference, outcome);
  if (outcome.violation.empty() && outcome.trace_hash != first)
    outcome.violation = "the same seed gave another trace";
  return outcome;
}

}  // namespace swarmline
