// What `status --json` and the live screen show of a reign; the members are listed in
// docs/formats/status.md.
//   Thread: control thread. Bounds: one entry a peer and a boundary.
#pragma once

#include <string>

#include "pipeline/coordinator/coordinator_parts.h"

namespace swarmline {

// `era_sentence`: why the newest era began, and where.
std::string coordinator_status_json(const CoordinatorParts& parts, const std::string& era_sentence);

}  // namespace swarmline
