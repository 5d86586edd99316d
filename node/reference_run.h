// `swarmline launch --reference`: the run in this process with no pipeline, leaving the same files
// as a swarm (config, log.jsonl, checkpoint) under DIR/NAME-reference.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/config/run_config.h"

namespace swarmline {

struct ReferenceRunOptions {
  RunConfig config;
  std::string device = "cpu";
  int threads = 1;
  std::uint64_t permute_sums = 0;  // ReferenceOptions::permute_sums
  std::string mutate;              // a mutation's name (tests); empty: none
  bool fresh = false;
  std::string checkpoint_folder;  // empty: checkpoints/ of the run folder
};
// Returns the exit code.
Result<int> run_reference_here(ReferenceRunOptions options);

}  // namespace swarmline
