// What a connection may ask a coordinator for, by what its link was admitted as
// (Connection::admitted_as): "run" holds the run's key; "peer", "observer" and "admin" came by an
// invite. Links that are not authenticated may ask for everything, as ever. Pure.
#pragma once

#include <string_view>

#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

inline bool link_may_ask(std::string_view admitted_as, MessageKind kind) {
  if (admitted_as.empty() || admitted_as == "run" || admitted_as == "admin") return true;
  if (kind == MessageKind::kStatusRequest) return true;
  return admitted_as == "peer" && kind != MessageKind::kStopRequest;
}

// Its link has proven that it may steer the run: it needs no admin secret.
inline bool link_may_steer(std::string_view admitted_as) {
  return admitted_as == "run" || admitted_as == "admin";
}

}  // namespace swarmline
