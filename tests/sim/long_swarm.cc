#include "tests/sim/long_swarm.h"

#include <limits>

#include "sim/cluster/fake_stage_model.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// Of one peer, each. What hits links, the coordinator or its disk may do so in a share of these.
constexpr Duration kDay = 24h;
std::vector<FaultRate> usual_rates(std::size_t peers) {
  using enum FaultKind;
  std::vector<FaultRate> rates;
  const auto each = [&](FaultKind kind, Duration mtbf, Duration time_max = {}) {
    rates.push_back(rate_of_mtbf(kind, mtbf, peers));
    rates.back().time_max = time_max;
  };
  each(kRestart, 4 * kDay, 600s);
  each(kPowerLoss, 20 * kDay, 600s);
  each(kKill, 20 * kDay);
  each(kDrain, 20 * kDay, 600s);
  each(kJoin, 10 * kDay);
  each(kBrokenJoin, 40 * kDay, 300s);
  each(kFreeze, 6 * kDay, 120s);
  each(kStall, 8 * kDay);
  each(kSlow, 8 * kDay, 3600s);
  each(kReset, 4 * kDay);
  each(kPartition, 6 * kDay, 300s);
  each(kOneWay, 12 * kDay, 300s);
  each(kIsolate, 12 * kDay);
  each(kMute, 24 * kDay);
  each(kDeaf, 24 * kDay);
  each(kHalfOpen, 12 * kDay);
  each(kHalfWay, 24 * kDay);
  each(kFull, 24 * kDay);
  each(kCorrupt, 24 * kDay, 60s);
  // Of the run's one journal and one disk.
  const auto every = [&](FaultKind kind, Duration gap, Duration time_max) {
    rates.push_back({.kind = kind, .per_hour = 3600 / to_seconds(gap), .time_max = time_max});
  };
  every(kJournalError, 8h, 120s);
  every(kJournalSlow, 8h, 120s);
  every(kJournalSilent, 8h, 60s);
  every(kStoreCut, 12h, 60s);
  every(kDiskFull, 8h, 600s);
  every(kDiskError, 8h, 600s);
  every(kDiskSlow, 8h, 600s);
  every(kDiskStuck, 8h, 600s);
  return rates;
}

}  // namespace

SeedScenario long_scenario(const LongSwarm& swarm) {
  SeedScenario scenario;
  RunConfig& config = scenario.swarm.config;
  const std::size_t peers = std::size_t{swarm.stages} * swarm.peers_of_stage;
  config.run.steps = 1'000'000;  // more than there is time for
  config.run.seed = 7;
  config.model.layers = swarm.stages;
  config.model.d_model = 8;
  config.model.heads = 2;
  config.model.dtype = DType::kF64;
  config.data.files = {"synthetic"};
  config.batch = {.batch = 4 * swarm.peers_of_stage, .microbatch = 2, .sequence = 4};
  config.optimizer.lr = 1e-3;
  config.optimizer.schedule = LearningSchedule::kConstant;
  config.pipeline.stages = swarm.stages;
  config.pipeline.peers.assign(swarm.stages, swarm.peers_of_stage);
  config.wiring.hop_timeout_seconds = 600;
  config.balance.period_seconds = 600;
  config.net.heartbeat_seconds = 5;
  config.net.coordinator_patience_seconds = 86400;
  scenario.swarm.seed = swarm.seed;
  scenario.swarm.make_model = make_fake_model;
  scenario.swarm.keep_log_lines = false;
  scenario.swarm.journal_time = 5ms;
  scenario.swarm.link = {.latency = 20ms, .jitter = 5ms, .bytes_per_second = 0};
  scenario.swarm.checkpoint_read = 5s;
  scenario.swarm.peers.assign(peers, {.forward = 10s,
                                      .backward = 20s,
                                      .jitter = 0.3,
                                      .control = 50ms,
                                      .join_patience_seconds = 86400,
                                      .card = {}});
  for (std::size_t i = 0; i < peers; i += 2) scenario.swarm.peers[i].sees_checkpoints = true;
  scenario.knobs.knobs.heartbeats_per_second = 5;
  scenario.knobs.knobs.heartbeat_period_max = 60s;
  scenario.faults = {.kinds = {},
                     .rates = usual_rates(peers),
                     .lasts = swarm.lasts,
                     .long_time_max = 700s,
                     .grace = 180s,
                     .machines_min = peers - peers / 10,
                     .machines_max = peers + peers / 10,
                     .peers_made_max = 50'000};
  scenario.longer = {.lasts = swarm.lasts, .looks = 60s, .window = swarm.window, .on_window = {}};
  scenario.patience = 2h;
  scenario.rules = all_oracle_rules();
  return scenario;
}

}  // namespace swarmline
