// Where a run's journal is and who leads it: the control store that its config names.
//   Thread: any; calls block as a control store's do. Errors: its own.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/store/control_store.h"
#include "engine/store/journal.h"
#include "node/run_folder.h"

namespace swarmline {

ControlStoreOptions control_store_of(const RunConfig& config, const RunFolder& folder);
// For who does not lead the run; null: it has not begun.
Result<std::unique_ptr<JournalReader>> read_journal(const RunConfig& config,
                                                    const RunFolder& folder);

}  // namespace swarmline
