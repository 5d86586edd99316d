// Which links are authenticated and sealed: those that another machine could reach.
//   Thread: pure.
#pragma once

#include <string_view>

#include "engine/config/run_config.h"

namespace swarmline {

// A host that is this machine, whatever a name server says.
bool is_loopback(std::string_view host);
// Links of this run are between keys.
bool wants_keys(const RunConfig& config);

}  // namespace swarmline
