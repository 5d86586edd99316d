// Whether a run that is started again has spent its budget: it would end at once.
//   Errors: kUserMistake, with what to change; kIo and others of a journal that can't be read.
#pragma once

#include "base/result.h"
#include "engine/config/run_config.h"
#include "node/run_folder.h"

namespace swarmline {

Result<void> check_budget(const RunConfig& config, const RunFolder& folder);

}  // namespace swarmline
