// `swarmline doctor`: everything that can be checked of what it was told, in one order.
//   What:    of a config, whether this machine can run its coordinator, and its whole swarm; of a
//            coordinator, whether this machine can join it; of a status, how that run is doing;
//            of nothing, this machine by itself.
//   Thread:  any; blocking. Errors: kUserMistake, of what it was told; what is wrong with the
//            machine or the run is a finding.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "node/run_access.h"
#include "pipeline/protocol/run_status.h"
#include "tools/doctor/finding.h"

namespace swarmline {

struct DoctorQuestion {
  std::optional<RunConfig> config;
  std::optional<JoinTarget> join;
  PeerConfig machine;  // as a peer here would have it
  std::optional<RunStatus> status;
  std::string libtorch;  // that the program was built with
  // Computes a small stage on that device; empty: nothing computes.
  std::function<Result<void>(const PeerConfig&)> compute;
};
Result<std::vector<Finding>> examine(const DoctorQuestion& question);

}  // namespace swarmline
