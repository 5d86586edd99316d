// A run that nobody coordinates any more and that was not ended: what its folder says of it.
//   What:      its config, journal and checkpoints as a status of the state "died", whose
//              sentence says how far it came, when, and how to go on.
//   Errors:    kNotFound: the folder has no journal, or its run's journal is elsewhere (etcd).
//   Bounds:    kDeadRunEvents events. Thread: any.
#pragma once

#include "base/result.h"
#include "node/run_folder.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {

inline constexpr std::size_t kDeadRunEvents = 16;

// Nobody answers for it: it is not asked.
Result<RunStatus> status_of_dead_run(const RunFolder& folder);

}  // namespace swarmline
