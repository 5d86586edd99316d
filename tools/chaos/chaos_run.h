// Carries out a chaos plan: the run's processes are started, hurt as the plan says, and watched
// until the run is over.
//   Thread:  blocking, one thread. Nothing is left running.
//   Errors:  kIo when processes can't be started; a run that fails is a result.
//   Bounds:  patience_seconds without a commit, then the run counts as stuck and is ended; minutes
//           to its start.
#pragma once

#include <string>
#include <vector>

#include "engine/config/run_config.h"
#include "node/run_folder.h"
#include "tools/chaos/chaos_plan.h"
#include "tools/chaos/chaos_report.h"

namespace swarmline {

struct ChaosRunOptions {
  RunConfig config;  // net.standby names one where the plan ends the coordinator
  ChaosPlan plan;
  RunFolder folder;                         // prepared
  std::vector<std::string> peer_arguments;  // for every peer
  double peer_speed = 0;                    // of each, microbatches per second; 0: not emulated
  double patience_seconds = 90;
  bool says = true;  // what happens, as it happens
};
// The comparison is left out.
Result<ChaosResult> run_chaos(ChaosRunOptions options);

}  // namespace swarmline
