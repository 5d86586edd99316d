// What each stage of a run will hold, before it starts. Pure, but for check_config().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"
#include "node/run_data.h"
#include "node/stage_memory.h"

namespace swarmline {

struct StageHolding {
  StageSpec stage;
  std::uint32_t peers = 0;
  std::uint64_t parameters = 0;        // elements, gaps not counted
  std::uint64_t state_bytes = 0;       // a peer: parameters, gradients, optimizer moments
  std::uint64_t activation_bytes = 0;  // a microbatch, until its backward
  std::uint64_t saved_bytes = 0;       // of a checkpoint
  std::uint32_t in_flight = 0;         // microbatches: a peer's even share of all under way
  // Of a peer with that share, at its worst moment; what libtorch takes itself is not counted. On
  // a CUDA device, what its memory holds.
  PeerMemory memory, memory_recomputing;
  CudaPeerMemory cuda;
  std::uint64_t needed_bytes = 0;              // memory's total
  std::uint64_t needed_recomputing_bytes = 0;  // the same, if it recomputes
  double flops_share = 0;                      // 0..1
};

Result<std::vector<StageHolding>> stage_holdings(const RunConfig& config, const ModelSpec& model);

// The least memory, in bytes, with which a peer of each stage can serve it: on a CUDA device or
// not, and recomputing where the config lets it.
Result<std::vector<std::uint64_t>> least_memory(const RunConfig& config, const ModelSpec& model);

// What `swarmline config check` found.
struct ConfigCheck {
  RunConfig config;
  ModelSpec model;
  std::optional<TokenDataset> data;  // empty: not on this machine, and `missing` is what is not
  std::string missing;
  std::vector<StageHolding> stages;
};
// Reads the data where it is; where it is not, all else is checked. kUserMistake, kIo.
Result<ConfigCheck> check_config(RunConfig config);
std::string check_text(const ConfigCheck& check);
std::string check_json(const ConfigCheck& check);

}  // namespace swarmline
