// What a connection may ask a coordinator for, by what its link was admitted as
// (Connection::admitted_as): "run" holds the run's key; "peer", "observer" and "admin" came by an
// invite. Links that are not authenticated may ask for everything, as ever. Pure.
#pragma once

#include <functional>
#include <string_view>

#include "base/marks.h"
#include "engine/net/network.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/protocol/trial.h"

namespace swarmline {

inline bool link_may_ask(std::string_view admitted_as, MessageKind kind) {
  if (admitted_as.empty() || admitted_as == "run" || admitted_as == "admin") return true;
  if (kind == MessageKind::kStatusRequest || kind == kTrialRequest) return true;
  return admitted_as == "peer" && kind != MessageKind::kStopRequest &&
         kind != MessageKind::kCheckpointRequest;
}

// Its link has proven that it may steer the run: it needs no admin secret.
inline bool link_may_steer(std::string_view admitted_as) {
  return admitted_as == "run" || admitted_as == "admin";
}

// It was the run's own key when the link was made. `is_run_key`: whether one is now; empty: it is.
inline bool link_is_of_a_former_key(const Connection& connection,
                                    const std::function<bool(const KeyHash&)>& is_run_key) {
  const auto key = connection.peer_key();
  if (!key || !is_run_key || connection.admitted_as() != "run" || is_run_key(*key)) return false;
  SWARMLINE_MARK("link_scope.key_of_before");
  return true;
}

}  // namespace swarmline
