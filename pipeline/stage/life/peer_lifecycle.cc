#include "pipeline/stage/life/peer_lifecycle.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace swarmline {

std::string_view to_string(PeerState state) {
  constexpr std::array<std::string_view, kPeerStates> kNames = {
      "seeking", "building", "inheriting", "seated", "adrift", "dropping", "finished"};
  return kNames[static_cast<std::size_t>(state)];
}

void PeerLifecycle::become(PeerState state) {
  SWARMLINE_CHECK_MSG(may_follow(state_, state), std::string("a peer that is ") +
                                                     std::string(to_string(state_)) + " becomes " +
                                                     std::string(to_string(state)));
  before_ = std::exchange(state_, state);
  if (state == PeerState::kDropping) ++life_;
}

}  // namespace swarmline
