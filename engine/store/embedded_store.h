// The control store of a run on one machine, in the run folder: see control_store.h.
#pragma once

#include <memory>
#include <string>

#include "engine/store/control_store.h"

namespace swarmline {

std::unique_ptr<ControlStore> open_embedded_store(Runtime& runtime, const std::string& run_folder);
Result<std::unique_ptr<JournalReader>> read_embedded_journal(const std::string& run_folder);

}  // namespace swarmline
