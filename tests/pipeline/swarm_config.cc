#include "tests/pipeline/swarm_config.h"

#include <utility>

namespace swarmline {

using namespace std::chrono_literals;

RunConfig small_run(std::uint32_t stages, std::uint32_t peers) {
  RunConfig config;
  config.run.steps = 4;
  config.run.seed = 7;
  config.model.layers = 4;
  config.model.d_model = 8;
  config.model.heads = 2;
  config.model.dtype = DType::kF64;
  config.data.files = {"synthetic"};
  config.batch = {.batch = 16, .microbatch = 2, .sequence = 4};
  config.optimizer.lr = 1e-2;
  config.optimizer.schedule = LearningSchedule::kConstant;
  config.codec = {.forward = "none", .backward = "none"};
  config.pipeline.stages = stages;
  config.pipeline.peers.assign(stages, peers);
  config.wiring.hop_timeout_seconds = 60;
  config.balance.moves = false;
  config.net.peer_silence_seconds = 3600;
  return config;
}

RunConfig small_run(std::vector<std::uint32_t> peers, std::uint32_t delay) {
  RunConfig config = small_run(static_cast<std::uint32_t>(peers.size()), 1);
  config.pipeline.peers = std::move(peers);
  config.pipeline.delay = delay;
  return config;
}

SimClusterOptions swarm_of(const RunConfig& config, MakeModel make_model) {
  SimClusterOptions options;
  options.config = config;
  options.make_model = std::move(make_model);
  options.link = {.latency = 1ms, .jitter = {}, .bytes_per_second = 0};
  return options;
}

}  // namespace swarmline
