#include "pipeline/wiring/static_wiring.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "base/marks.h"

namespace swarmline {

StaticWiring::StaticWiring(std::uint32_t in_flight_max) : in_flight_max_(in_flight_max) {
  SWARMLINE_CHECK(in_flight_max >= 1 &&
                  in_flight_max <= static_cast<std::uint32_t>(Limits::in_flight_per_next_peer_max));
}

PeerShare* StaticWiring::find(PeerId peer) {
  const auto at = std::find_if(candidates_.begin(), candidates_.end(),
                               [&](const PeerShare& c) { return c.peer == peer; });
  return at == candidates_.end() ? nullptr : &*at;
}

bool StaticWiring::add(PeerId peer, const ServicePrior& prior) {
  PeerShare* candidate = find(peer);
  if (candidate == nullptr) {
    if (candidates_.size() >= static_cast<std::size_t>(Limits::next_candidates_max)) return false;
    const auto at = std::find_if(candidates_.begin(), candidates_.end(),
                                 [&](const PeerShare& c) { return c.peer > peer; });
    candidate = &*candidates_.insert(at, PeerShare{});
    candidate->peer = peer;
  }
  candidate->expected_forward = prior.forward;
  candidate->expected_backward = prior.backward;
  return true;
}

void StaticWiring::remove(PeerId peer) {
  std::erase_if(candidates_, [&](const PeerShare& c) { return c.peer == peer; });
}

std::optional<PeerId> StaticWiring::pick(const MicrobatchId& microbatch,
                                         const std::vector<PeerId>& exclude) {
  const std::size_t n = candidates_.size();
  for (std::size_t step = 0; step < n; ++step) {
    PeerShare& candidate = candidates_[(microbatch.index + step) % n];
    if (std::find(exclude.begin(), exclude.end(), candidate.peer) != exclude.end()) continue;
    if (candidate.banned || candidate.full || candidate.in_flight >= in_flight_max_) {
      SWARMLINE_MARK("wiring.static_route_waits");
      break;
    }
    ++candidate.in_flight;
    ++candidate.picks;
    return candidate.peer;
  }
  return std::nullopt;
}

void StaticWiring::on_sent(PeerId, Duration) {}

void StaticWiring::on_forward_done(PeerId peer, Duration service) {
  on_heard(peer);
  if (PeerShare* candidate = find(peer)) candidate->expected_forward = service;
}

void StaticWiring::on_backward_done(PeerId peer, Duration service) {
  on_heard(peer);
  if (PeerShare* candidate = find(peer)) candidate->expected_backward = service;
}

void StaticWiring::on_settled(PeerId peer) {
  PeerShare* candidate = find(peer);
  if (candidate != nullptr && candidate->in_flight > 0) --candidate->in_flight;
}

void StaticWiring::on_timeout(PeerId peer, Duration) {
  PeerShare* candidate = find(peer);
  if (candidate == nullptr) return;
  SWARMLINE_MARK("wiring.static_banned");
  candidate->banned = true;
}

void StaticWiring::on_full(PeerId peer) {
  PeerShare* candidate = find(peer);
  if (candidate == nullptr) return;
  candidate->full = true;
  if (candidate->in_flight == 0) return;  // removed and added again meanwhile
  --candidate->in_flight;
  candidate->picks -= std::min<std::uint64_t>(candidate->picks, 1);
}

void StaticWiring::on_credit(PeerId peer) {
  on_heard(peer);
  if (PeerShare* candidate = find(peer)) candidate->full = false;
}

void StaticWiring::on_heard(PeerId peer) {
  PeerShare* candidate = find(peer);
  if (candidate == nullptr || !candidate->banned) return;
  SWARMLINE_MARK("wiring.static_back_from_a_ban");
  candidate->banned = false;
}

std::vector<PeerShare> StaticWiring::shares() const {
  return candidates_;
}

}  // namespace swarmline
