#include "sim/seeds/swarm_seed.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kEventsShown = 200;

// What each stage's committed state digests to, by version.
using Digests = std::map<std::pair<StageId, std::uint64_t>, std::uint64_t>;
// ... without faults.
using Wanted = std::function<std::uint64_t(StageId, std::uint64_t version)>;

// One run under watch.
class Watch {
 public:
  // `looks`: between two looks at all there is; 0: after each event.
  Watch(const SimClusterOptions& options, Wanted wanted, Duration looks, Duration patience = {},
        const SeedTap& on_frame = {})
      : cluster_(options),
        oracles_(cluster_,
                 {.patience = patience, .each = std::max(looks, SwarmOracles::Pace().each)}),
        wanted_(std::move(wanted)),
        looks_(looks) {
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
      if (kind_of(frame) == MessageKind::kReady) on_ready(parse<wire::Ready>(frame));
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
          if (looks_ == Duration{} || cluster_.elapsed() >= next_look_) look();
          if (cluster_.coordinators_killed() > killed_) on_power_cut();
          oracles_.look();
          return !violation_.empty() || done();
        },
        limit);
    return ended && violation_.empty();
  }

 private:
  void look() {
    next_look_ = cluster_.elapsed() + looks_;
    if (looks_ > Duration{}) cluster_.bury();
    if (cluster_.has_coordinator()) cluster_.coordinator().check_invariants();
    for (std::size_t i = 0; i < cluster_.peers(); ++i)
      if (!cluster_.is_buried(i)) cluster_.peer(i).check_invariants();
  }
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
  // What anybody heard of was synced before.
  void on_power_cut() {
    killed_ = cluster_.coordinators_killed();
    if (cluster_.journal().commits() < announced_commits_)
      violate(
          fmt::format("commit {} was announced, and is lost with what was not synced", announced_));
    std::map<PeerId, Incarnation> kept;  // the newest of each peer that is not forgotten
    for (const SeatRecord& record : *cluster_.journal().seats())
      kept[record.seat.peer] = record.seat.incarnation;
    const auto number = cluster_.journal().get_meta("newest_peer");
    const PeerId forgotten{*number ? static_cast<std::uint32_t>(std::stoul(**number)) : 0};
    const auto is_kept = [&](const Seat& seat) {
      const auto newest = kept.find(seat.peer);
      return newest == kept.end() ? seat.peer <= forgotten : newest->second >= seat.incarnation;
    };
    for (const Seat& seat : seats_)
      if (!is_kept(seat))
        violate(fmt::format("{} was given, and is lost with what was not synced", to_string(seat)));
  }
  // Parameters alone have no digest of the state.
  void on_ready(const Result<wire::Ready>& ready) {
    if (!ready->parameters_alone()) on_state(ready);
  }
  template <typename Message>
  void on_state(const Result<Message>& message) {
    const Seat seat = from_wire(message->seat());
    const auto key = std::pair(seat.stage, message->version());
    if (!wanted_) {
      digests_[key] = message->state_digest();
    } else if (wanted_(seat.stage, message->version()) != message->state_digest()) {
      violate(fmt::format("{} holds other bits at version {} than the run without faults",
                          to_string(seat), message->version()));
    }
  }

  SimCluster cluster_;
  SwarmOracles oracles_;
  Wanted wanted_;
  Duration looks_;
  Duration next_look_{};
  Digests digests_;
  std::string violation_;
  bool trains_ = false;
  std::uint64_t killed_ = 0;  // coordinators
  std::uint64_t announced_ = 0;
  std::uint64_t announced_commits_ = 0;  // that the journal had when one was announced last
  std::set<Seat> seats_;
};

// The same cut with one peer a stage and no faults: no choice, no averaging. As far as is asked
// for.
class Reference {
 public:
  explicit Reference(const SeedScenario& scenario)
      : watch_(options_of(scenario), {}, scenario.longer.looks) {}

  std::uint64_t digest(StageId stage, std::uint64_t version) {
    run_until([&] { return watch_.digests().contains({stage, version}); });
    return watch_.digests().at({stage, version});
  }
  Duration time_to_end() {
    run_until([&] { return watch_.cluster().outcome().has_value(); });
    SWARMLINE_CHECK(watch_.cluster().outcome()->exit_code == 0);
    return watch_.cluster().elapsed();
  }

 private:
  static SimClusterOptions options_of(const SeedScenario& scenario) {
    SimClusterOptions options = scenario.swarm;
    std::ranges::fill(options.config.pipeline.peers, 1U);
    options.keys = false;
    for (SimPeer& peer : options.peers) {
      peer.control = {};
      // Its bits are the same however long it takes.
      if (scenario.longer.lasts > Duration{}) peer.forward = peer.backward = 1ms;
    }
    return options;
  }
  void run_until(const std::function<bool()>& done) {
    SWARMLINE_CHECK_MSG(watch_.run_until(done, 3600s),
                        "the run without faults: " + watch_.cluster().coordinator().status_json());
  }

  Watch watch_;
};

void note_so_far(SimCluster& cluster, SeedOutcome& outcome) {
  outcome.committed = cluster.journal().last_commit()->value_or(CommitRecord()).version;
  outcome.steps = cluster.runtime().events();
  outcome.virtual_seconds = to_seconds(cluster.elapsed());
  outcome.peers = cluster.peers();
  outcome.journal_records = cluster.journal_writes();
}

void begin_window(const LongRun& run, Watch& watch, SeedOutcome& outcome) {
  watch.cluster().runtime().node(kWorldNode).call_after(run.window, [&run, &watch, &outcome] {
    outcome.windows.push_back(watch.oracles().sizes().take_peaks());
    note_so_far(watch.cluster(), outcome);
    if (run.on_window) run.on_window(outcome);
    begin_window(run, watch, outcome);
  });
}

// The scenario once; fills in what it saw.
void run_once(const SeedScenario& scenario, Reference& reference, SeedOutcome& outcome,
              const SeedTap& on_frame = {}) {
  const std::uint64_t events_before = outcome.steps;
  const Duration waits = kLivenessWaits * scenario.knobs.patience;
  const LongRun& longer = scenario.longer;
  const bool stops = longer.lasts > Duration{};
  const auto wanted = [&](StageId stage, std::uint64_t version) {
    return reference.digest(stage, version);
  };
  const Duration reference_time = stops ? Duration{} : reference.time_to_end();
  Watch watch(scenario.swarm, wanted, longer.looks, waits, on_frame);
  SimCluster& cluster = watch.cluster();
  FaultInjector injector(cluster);
  RandomFaults faults(cluster, injector, scenario.faults, Rng(scenario.swarm.seed).split("faults"));
  const auto ended = [&] { return cluster.outcome().has_value(); };
  const Duration formed = scenario.faults_at_once ? 3600s : scenario.patience + waits;
  if (longer.window > Duration{}) begin_window(longer, watch, outcome);
  if (scenario.faults_at_once) faults.start();
  if (!watch.run_until([&] { return watch.trains(); }, formed))
    watch.violate("the swarm does not form: " + cluster.coordinator().status_json());
  faults.on_training();
  if (!scenario.faults_at_once) faults.start();
  const bool calm = watch.run_until([&] { return ended() || (faults.over() && injector.healed()); },
                                    longer.lasts + 3600s);
  if (!calm) watch.violate("the faults do not end");
  if (stops && cluster.has_coordinator()) cluster.coordinator().request_stop(false);
  const Duration patience = scenario.patience + kLivenessRuns * reference_time + waits;
  if (!watch.run_until(ended, patience))
    watch.violate(fmt::format(
        "no end within {:.0f} s after the last fault: {}", to_seconds(patience),
        cluster.has_coordinator() ? cluster.coordinator().status_json() : "nobody leads"));
  if (ended() && cluster.outcome()->exit_code != 0)
    watch.violate("the run failed: " + cluster.outcome()->sentence);
  note_so_far(cluster, outcome);
  outcome.steps += events_before;
  const std::uint64_t last = stops ? outcome.committed : scenario.swarm.config.run.steps;
  if (ended() && cluster.checkpoint().version() != last)
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
  outcome.trace_hash = cluster.trace_hash();
}

}  // namespace

SeedOutcome run_scenario(const SeedScenario& scenario, const SeedTap& on_frame) {
  SeedOutcome outcome;
  outcome.summary = scenario.summary;
  const TurnedKnobs turned(scenario.knobs.knobs);
  Reference reference(scenario);
  run_once(scenario, reference, outcome, on_frame);
  if (!outcome.violation.empty()) return outcome;
  const std::uint64_t first = outcome.trace_hash;
  run_once(scenario, reference, outcome);
  if (outcome.violation.empty() && outcome.trace_hash != first)
    outcome.violation = "the same seed gave another trace";
  return outcome;
}

SeedOutcome run_scenario_once(const SeedScenario& scenario) {
  SeedOutcome outcome;
  outcome.summary = scenario.summary;
  const TurnedKnobs turned(scenario.knobs.knobs);
  Reference reference(scenario);
  run_once(scenario, reference, outcome);
  return outcome;
}

}  // namespace swarmline
