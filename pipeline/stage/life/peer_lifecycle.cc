#include "pipeline/stage/life/peer_lifecycle.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace swarmline {

void PeerLifecycle::become(PeerState state) {
  SWARMLINE_CHECK_MSG(kPeerStates.allows(state_, state),
                      fmt::format("a peer that is {} becomes {}", kPeerStates.name(state_),
                                  kPeerStates.name(state)));
  before_ = std::exchange(state_, state);
  if (state == PeerState::kDropping) ++life_;
}

}  // namespace swarmline
