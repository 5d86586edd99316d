// How a peer command is told what to join: --join, or the environment variable SWARMLINE_JOIN.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "node/run_access.h"

namespace swarmline {

inline constexpr const char* kJoinVariable = "SWARMLINE_JOIN";

// `machine` is brought in line: who joins another machine listens where others reach it.
// kUserMistake: nothing to join; another machine without an invite and without --insecure.
Result<JoinTarget> join_target(const std::string& flag, PeerConfig& machine);

}  // namespace swarmline
