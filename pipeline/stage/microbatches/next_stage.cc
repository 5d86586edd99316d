#include "pipeline/stage/microbatches/next_stage.h"

#include <algorithm>
#include <utility>

#include "pipeline/wiring/static_wiring.h"
#include "pipeline/wiring/wiring_router.h"

namespace swarmline {

std::unique_ptr<Wiring> make_wiring(const RunConfig& config, const Seat& self) {
  if (config.pipeline.wiring == WiringKind::kStatic)
    return std::make_unique<StaticWiring>(config.wiring.in_flight_per_peer);
  WiringOptions options;
  options.alpha = config.wiring.alpha;
  options.in_flight_max = config.wiring.in_flight_per_peer;
  options.seed = config.run.seed ^ self.peer.value;
  return std::make_unique<WiringRouter>(options);
}

std::vector<PeerId> NextStage::set(const std::vector<Candidate>& candidates) {
  std::map<PeerId, Seat> now;
  for (const Candidate& candidate : candidates) now[candidate.seat.peer] = candidate.seat;
  const auto before = std::exchange(candidates_, {});
  // First: the wiring takes no more than so many.
  for (const auto& [peer, seat] : before)
    if (!now.contains(peer)) wiring_->remove(peer);
  for (const auto& [seat, prior] : candidates)
    if (wiring_->add(seat.peer, prior)) candidates_[seat.peer] = seat;
  std::vector<PeerId> gone;
  for (const auto& [peer, seat] : before)
    if (!candidates_.contains(peer)) gone.push_back(peer);
  return gone;
}

bool NextStage::remove(const Seat& lost) {
  const auto candidate = candidates_.find(lost.peer);
  if (candidate == candidates_.end() || !is_over_with(candidate->second, lost)) return false;
  candidates_.erase(candidate);
  wiring_->remove(lost.peer);
  return true;
}

std::optional<Seat> NextStage::pick(const MicrobatchId& microbatch,
                                    const std::vector<PeerId>& exclude, bool late) {
  const auto picked =
      late ? wiring_->pick_soonest(microbatch, exclude) : wiring_->pick(microbatch, exclude);
  if (!picked) return std::nullopt;
  if (const auto next = candidates_.find(*picked); next != candidates_.end()) return next->second;
  wiring_->on_settled(*picked);
  return std::nullopt;
}

bool NextStage::all_in(const std::vector<PeerId>& tried) const {
  return std::ranges::all_of(candidates_, [&](const auto& entry) {
    return std::ranges::find(tried, entry.first) != tried.end();
  });
}

}  // namespace swarmline
