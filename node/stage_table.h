// What each stage of a run will hold, before it starts. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/model/model_spec.h"
#include "node/run_data.h"

namespace swarmline {

struct StageHolding {
  StageSpec stage;
  std::uint32_t peers = 0;
  std::uint64_t parameters = 0;        // elements, gaps not counted
  std::uint64_t state_bytes = 0;       // a peer: parameters, gradients, optimizer moments
  std::uint64_t activation_bytes = 0;  // a microbatch, until its backward
  double flops_share = 0;              // 0..1
};

Result<std::vector<StageHolding>> stage_holdings(const RunConfig& config, const ModelSpec& model);

std::string check_text(const RunConfig& config, const RunData& data,
                       const std::vector<StageHolding>& stages);
std::string check_json(const RunConfig& config, const RunData& data,
                       const std::vector<StageHolding>& stages);

}  // namespace swarmline
