// A run in plain lines, and what is said when it is over. Pure.
#pragma once

#include <string>

#include "node/run_folder.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {

// "step 12/400  loss 2.4310  12,345 tokens/s  ETA 2m 31s  8 in flight"
std::string plain_line(const RunStatus& status);

// Several lines, each ended. `hint`: also what to try next.
std::string summary(const RunStatus& status, const RunFolder& folder, bool hint);

// A line on a run that is there already, ended; empty for a new one.
std::string describe_start(RunStart start, const RunFolder& folder, const RunConfig& config);

// Several lines for `swarmline status`.
std::string describe(const RunStatus& status);

}  // namespace swarmline
