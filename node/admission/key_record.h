// Which key leads a run, in its journal: whoever begins to lead finds out whether the key that it
// has is the one that the run has come to.
//   Thread: any, as the journal's. Errors: those of journal.h.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "engine/store/journal.h"
#include "node/admission/run_key.h"

namespace swarmline {

// The key itself, or one that was handed over to it, by what stands beside it.
bool leads_to(const KeyHash& before, const RunKey& key, const std::string& run);

// None: the journal knows of no key.
Result<std::optional<std::string>> recorded_key(Journal& journal);  // its hash in hex
Result<void> record_key(Journal& journal, const RunKey& key, double now);

}  // namespace swarmline
