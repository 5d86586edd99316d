// Which checkpoints of a run stay, by its config and by what its log says of held-out losses.
//   Thread: any. Blocking: reads the log where losses count. Errors: a log that can't be read has
//   no losses, with a warning.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/checkpoint/retention.h"
#include "engine/config/run_config.h"

namespace swarmline {

// By version.
std::map<std::uint64_t, double> held_out_losses(const std::string& log_path);
Retention retention_of(const CheckpointSection& config, const std::string& log_path);

}  // namespace swarmline
