// What a seed draws: swarm, links, faults, knobs.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/cluster/fake_stage_model.h"
#include "sim/cluster/resident_model.h"
#include "sim/seeds/swarm_seed.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kManyPeers = 18;
constexpr std::uint64_t kLongFaultsOneIn = 2;   // seeds
constexpr std::uint64_t kUsualHedgesOneIn = 4;  // seeds; the others try again as often as they like
constexpr std::uint64_t kLongKindsMax = 3;
constexpr std::uint64_t kKeysOneIn = 4;  // seeds
constexpr std::uint64_t kSmallPiecesOneIn = 4;
constexpr std::uint64_t kIslandsOneIn = 4;

template <typename T>
T one_of(Rng& rng, std::initializer_list<T> choices) {
  return choices.begin()[rng.below(choices.size())];
}
bool once_in(Rng& rng, std::uint64_t n) {
  return rng.below(n) == 0;
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

bool has_gpus(const SimClusterOptions& swarm) {
  return std::ranges::any_of(swarm.peers, [](const SimPeer& peer) { return peer.gpu.has_value(); });
}

std::string summary_of(const SeedScenario& scenario) {
  const RunConfig& config = scenario.swarm.config;
  const Duration control = scenario.swarm.peers.front().control;
  std::vector<std::string_view> kinds;
  for (const FaultKind kind : scenario.faults.kinds) kinds.push_back(to_string(kind));
  return fmt::format(
      "{} steps of {} microbatches, peers {}, shadows {}, delay {}, width {}{}, {} faults of "
      "{{{}}} every {:.3g} s{}{}{}{}{}{}{}",
      config.run.steps, config.microbatches_per_step(), fmt::join(config.pipeline.peers, "+"),
      shadows_text(config.balance.shadows), config.pipeline.delay, config.model.d_model,
      config.model.tied_embeddings ? " tied" : "", scenario.faults.count, fmt::join(kinds, " "),
      to_seconds(scenario.faults.gap), scenario.faults_at_once ? " from the beginning" : "",
      control == Duration{} ? "" : fmt::format("; control jobs of {:.3g} s", to_seconds(control)),
      scenario.swarm.keys ? "; keys" : "", config.net.islands == Islands::kHost ? "; islands" : "",
      has_gpus(scenario.swarm) ? " of GPUs" : "",
      scenario.knobs.words.empty() ? "" : "; knobs: ", scenario.knobs.words);
}

// Two or three hosts, and peers that say none.
void draw_islands(Rng& rng, SimClusterOptions& swarm) {
  swarm.config.net.islands = Islands::kHost;
  const std::uint64_t hosts = 2 + rng.below(2);
  for (SimPeer& peer : swarm.peers)
    if (!once_in(rng, 5)) peer.host = fmt::format("host-{}", rng.below(hosts));
}

// Of peers on such hosts: cards that some share, libraries that some lack, fabrics that fail.
void draw_gpus(Rng rng, SimClusterOptions& swarm) {
  const bool together = once_in(rng, 3);  // all on one host
  const std::uint64_t cards = 2 + rng.below(31);
  for (SimPeer& peer : swarm.peers) {
    if (together) peer.host = "host-0";
    if (!peer.host.empty() && !once_in(rng, 12))
      peer.gpu = SimFabricPlace{.host = peer.host,
                                .card = static_cast<std::uint32_t>(rng.below(cards)),
                                .nccl = !once_in(rng, 12),
                                .ipc = !once_in(rng, 12)};
  }
  swarm.fabric.bytes_per_second = one_of<double>(rng, {1e6, 1e9});
  swarm.fabric.setup = one_of<Duration>(rng, {1ms, 200ms});
  swarm.fabric.patience = one_of<Duration>(rng, {500ms, 2s});
  swarm.fabric.errors = one_of<double>(rng, {0, 0, 0.01, 0.2});
  swarm.fabric.stalls = one_of<double>(rng, {0, 0, 0.1});
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
  Rng thin = root.split("thin heartbeats");
  if (extras.thin_heartbeats && once_in(thin, 2)) {
    draw_thin_heartbeats(thin, scenario.knobs);
    scenario.faults.grace += scenario.knobs.knobs.heartbeat_period_max;
  }
  Rng pieces = root.split("small pieces");
  if (extras.small_pieces && once_in(pieces, kSmallPiecesOneIn))
    make_pieces_small(scenario.swarm.config, scenario.knobs);
  Rng islands = root.split("islands");
  if (extras.islands && once_in(islands, kIslandsOneIn)) draw_islands(islands, scenario.swarm);
  Rng times = root.split("control times");
  if (!extras.control_times || once_in(times, 2)) return;
  // A job as long as two hop timeouts counts as a device that hangs; of a checkpoint nothing comes
  // for as long as the jobs before its first piece take.
  const Duration most =
      std::min<Duration>(from_seconds(scenario.swarm.config.wiring.hop_timeout_seconds / 8),
                         scenario.knobs.knobs.checkpoint_progress / 8);
  const auto mean = std::min(most, one_of<Duration>(times, {1ms, 5ms, 40ms, 300ms}));
  for (SimPeer& peer : scenario.swarm.peers) peer.control = mean;
  scenario.swarm.checkpoint_read = one_of<Duration>(times, {0ms, 100ms, 5s});
  scenario.patience += kLongLivenessTime;
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

void draw_keys(Rng rng, SeedScenario& scenario) {
  scenario.swarm.keys = once_in(rng, kKeysOneIn);
  if (!scenario.swarm.keys) return;
  for (const FaultName& kind : kFaultKinds)
    if (is_of_keys(kind.kind) && once_in(rng, 2)) scenario.faults.kinds.push_back(kind.kind);
}

}  // namespace

SeedExtras usual_extras() {
  SeedExtras extras{.kinds = {},
                    .hits_last = true,
                    .control_times = true,
                    .thin_heartbeats = true,
                    .keys = true,
                    .small_pieces = true,
                    .islands = true};
  for (const FaultName& kind : kFaultKinds)
    if (kind.on_request && kind.kind != FaultKind::kZoneLoss)  // their machines have no zones
      extras.kinds.push_back(kind.kind);
  return extras;
}

SeedScenario scenario_of(std::uint64_t seed, const SeedExtras& extras) {
  const Rng root(seed);
  SeedScenario scenario;
  SimClusterOptions& swarm = scenario.swarm;
  swarm.seed = seed;
  swarm.config = draw_config(root.split("config"));
  if (seed % kUsualHedgesOneIn != 0) swarm.config.wiring.hedge_share = 1;
  swarm.link = draw_link(root.split("link"));
  Rng home = root.split("home");  // of parameters, sums and the optimizer
  const bool on_device = once_in(home, 3);
  swarm.make_model = on_device ? make_resident_model : make_fake_model;
  Rng rng = root.split("scenario");
  if (swarm.config.eval.every_steps > 0) swarm.eval_sequences = 4;
  scenario.faults_at_once = once_in(rng, 2);
  for (std::uint32_t i = 0; i < 32; ++i) {
    const auto work = 1ms * static_cast<int>(1 + rng.below(8));
    swarm.peers.push_back(
        {.forward = work, .backward = 2 * work, .jitter = once_in(rng, 2) ? 0.3 : 0});
    if (!on_device) continue;
    swarm.peers.back().way_in = 1ms * static_cast<int>(home.below(4));
    swarm.peers.back().way_out = 1ms * static_cast<int>(home.below(4));
  }
  const Duration silence = draw_silence(rng, swarm.config, swarm.link);
  RandomFaultOptions& faults = scenario.faults;
  for (const FaultName& kind : kFaultKinds)
    if (kind.kind != FaultKind::kCorrupt && !kind.on_request && !hits_disk(kind.kind) &&
        !is_of_journal(kind.kind) && !is_of_keys(kind.kind) && once_in(rng, 2))
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
  if (on_device && swarm.config.net.islands == Islands::kHost) draw_gpus(root.split("gpus"), swarm);
  if (extras.keys) draw_keys(root.split("keys"), scenario);
  scenario.rules = extras.rules;
  scenario.summary = summary_of(scenario);
  return scenario;
}

}  // namespace swarmline
