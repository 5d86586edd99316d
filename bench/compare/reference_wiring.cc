#include "bench/compare/reference_wiring.h"

#include <algorithm>
#include <limits>

namespace swarmline::bench {

ReferenceWiring::Candidate* ReferenceWiring::find(PeerId peer) {
  const auto at = std::ranges::find(candidates_, peer, [](const auto& c) { return c.share.peer; });
  return at == candidates_.end() ? nullptr : &*at;
}

void ReferenceWiring::observe(PeerId peer, double seconds, double units) {
  Candidate* candidate = find(peer);
  if (candidate == nullptr) return;
  candidate->average += kAlpha * (seconds / units - candidate->average);
  candidate->weight += kAlpha * (1 - candidate->weight);
}

bool ReferenceWiring::add(PeerId peer, const ServicePrior&) {
  if (find(peer) != nullptr) return true;
  Candidate candidate;
  candidate.share.peer = peer;
  if (!candidates_.empty())
    candidate.cumulative = std::ranges::min(candidates_, {}, &Candidate::cumulative).cumulative;
  candidates_.insert(
      std::ranges::upper_bound(candidates_, peer, {}, [](const auto& c) { return c.share.peer; }),
      candidate);
  return true;
}

void ReferenceWiring::remove(PeerId peer) {
  std::erase_if(candidates_, [&](const Candidate& c) { return c.share.peer == peer; });
}

std::optional<PeerId> ReferenceWiring::pick(const MicrobatchId&,
                                            const std::vector<PeerId>& exclude) {
  Candidate* best = nullptr;
  std::uint64_t ties = 0;
  for (Candidate& candidate : candidates_) {
    if (candidate.share.full || std::ranges::find(exclude, candidate.share.peer) != exclude.end())
      continue;
    if (best == nullptr || candidate.cumulative < best->cumulative) {
      best = &candidate;
      ties = 1;
    } else if (candidate.cumulative == best->cumulative && rng_.below(++ties) == 0) {
      best = &candidate;
    }
  }
  if (best == nullptr) return std::nullopt;
  best->cumulative += (1 + kBackwardUnits) * best->seconds();
  ++best->share.in_flight;
  ++best->share.picks;
  return best->share.peer;
}

void ReferenceWiring::on_settled(PeerId peer) {
  Candidate* candidate = find(peer);
  if (candidate != nullptr && candidate->share.in_flight > 0) --candidate->share.in_flight;
}

void ReferenceWiring::on_full(PeerId peer) {
  Candidate* candidate = find(peer);
  if (candidate == nullptr) return;
  candidate->share.full = true;
  candidate->cumulative -= (1 + kBackwardUnits) * candidate->seconds();
  on_settled(peer);
  candidate->share.picks -= std::min<std::uint64_t>(candidate->share.picks, 1);
}

void ReferenceWiring::on_credit(PeerId peer) {
  if (Candidate* candidate = find(peer)) candidate->share.full = false;
}

std::vector<PeerShare> ReferenceWiring::shares() const {
  std::vector<PeerShare> shares;
  for (const Candidate& candidate : candidates_) shares.push_back(candidate.share);
  return shares;
}

}  // namespace swarmline::bench
