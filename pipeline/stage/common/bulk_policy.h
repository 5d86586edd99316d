// Which ways payloads may go between peers, by the run's config. Pure; the config has been checked.
#pragma once

#include "engine/config/run_config.h"
#include "engine/net/bulk/bulk_door.h"

namespace swarmline {

BulkPolicy bulk_policy_of(const RunConfig& config);

}  // namespace swarmline
