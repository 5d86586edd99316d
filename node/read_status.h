// A run's status, whoever can give it: its coordinator, or what an ended or dead run left behind.
//   Errors: those of admin_client.h and dead_run.h. Blocking, for as long as those. Thread: any.
#pragma once

#include <string>

#include "base/result.h"
#include "node/run_folder.h"

namespace swarmline {

// As JSON (docs/formats/status.md).
Result<std::string> read_status(const RunTarget& target);
// Of a run whose coordinator said `unanswered`: from its folder.
Result<std::string> left_status(const RunFolder& folder, const Error& unanswered);
// Empty: whoever asks may look all the same, and not steer.
std::string admin_secret_of(const RunTarget& target);

}  // namespace swarmline
