// How a living run is doing, judged by its status (docs/formats/status.md).
//   Thread: any; pure. Errors: none.
#pragma once

#include <vector>

#include "pipeline/protocol/run_status.h"
#include "tools/doctor/finding.h"

namespace swarmline {

// Of the median speed of its stage: a peer below it may be throttled, or busy with something else.
inline constexpr double kSlowPeerShare = 0.3;

Finding judge_state(const RunStatus& status);       // it goes on
Finding judge_journal(const RunStatus& status);     // what is decided can be written down
Finding judge_stages(const RunStatus& status);      // none hangs on one peer
Finding judge_protection(const RunStatus& status);  // what the loss of a stage would cost
Finding judge_links(const RunStatus& status);       // all that must reach each other do
Finding judge_peers(const RunStatus& status);       // none is far slower than its mates
Finding judge_arrivals(const RunStatus& status);    // nobody was refused
std::vector<Finding> judge_run(
    const RunStatus& status);  // all of these; of one that is over: the first

}  // namespace swarmline
