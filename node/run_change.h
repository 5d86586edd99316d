// A run that is started again with other settings: whether it may, before any process starts.
//   Thread: one. Errors: kUserMistake with the key; those of the journal and of the data.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "node/run_data.h"
#include "node/run_folder.h"
#include "pipeline/coordinator/run/segments.h"

namespace swarmline {

// Of the run's journal; none: there is no run, or an older version wrote its journal.
Result<RunSegments> read_segments(const RunConfig& config, const RunFolder& folder);
// The tokenizer that the data was prepared with; empty: it does not say.
std::string tokenizer_of(const DataSection& data);

// A journal of an older version does not know what the run was trained with: it goes on with that.
Result<void> check_old_journal(const RunConfig& config, const RunFolder& folder);
// The same, and whether the run may go on with this config and this data.
Result<void> check_change(const RunConfig& config, const RunFolder& folder, const RunData& data);

}  // namespace swarmline
