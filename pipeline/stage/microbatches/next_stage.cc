#include "pipeline/stage/microbatches/next_stage.h"

#include <algorithm>
#include <utility>

#include "pipeline/protocol/knobs.h"
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
  for (const auto& [seat, prior, weight] : candidates) {
    if (!wiring_->add(seat.peer, prior)) continue;
    candidates_[seat.peer] = seat;
    wiring_->set_weight(seat.peer, weight);
  }
  std::erase_if(out_, [&](const auto& entry) {
    const auto still = candidates_.find(entry.first);
    return still == candidates_.end() || still->second != before.at(entry.first);
  });
  std::vector<PeerId> gone;
  for (const auto& [peer, seat] : before)
    if (!candidates_.contains(peer)) gone.push_back(peer);
  return gone;
}

bool NextStage::remove(const Seat& lost) {
  const auto candidate = candidates_.find(lost.peer);
  if (candidate == candidates_.end() || !is_over_with(candidate->second, lost)) return false;
  candidates_.erase(candidate);
  out_.erase(lost.peer);
  wiring_->remove(lost.peer);
  return true;
}

std::optional<Seat> NextStage::pick(const MicrobatchId& microbatch,
                                    const std::vector<PeerId>& exclude, bool late) {
  std::vector<PeerId> without = exclude;
  for (const auto& [peer, out] : out_)
    if (is_out(peer)) without.push_back(peer);
  const auto picked =
      late ? wiring_->pick_soonest(microbatch, without) : wiring_->pick(microbatch, without);
  if (!picked) return std::nullopt;
  if (const auto next = candidates_.find(*picked); next != candidates_.end()) return next->second;
  wiring_->on_settled(*picked);
  return std::nullopt;
}

bool NextStage::all_in(const std::vector<PeerId>& tried) const {
  return std::ranges::all_of(candidates_, [&](const auto& entry) {
    return is_out(entry.first) || std::ranges::find(tried, entry.first) != tried.end();
  });
}

std::size_t NextStage::size() const {
  return all_out() ? candidates_.size() : candidates_.size() - out_.size();
}

// ---- Links --------------------------------------------------------------------------------------

bool NextStage::is_candidate(const Seat& peer) const {
  const auto candidate = candidates_.find(peer.peer);
  return candidate != candidates_.end() && candidate->second == peer;
}

bool NextStage::is_pausing(const Seat& peer) const {
  const auto out = out_.find(peer.peer);
  return out != out_.end() && out->second.pausing;
}

bool NextStage::leave_out(const Seat& peer) {
  return is_candidate(peer) && out_.try_emplace(peer.peer).second;
}

std::optional<Duration> NextStage::pause_for(const Seat& peer) {
  constexpr std::uint32_t kDoublingsMax = 16;
  if (!is_candidate(peer)) return std::nullopt;
  Out& out = out_[peer.peer];
  if (std::exchange(out.pausing, true)) return std::nullopt;
  const Duration pause = knobs().left_out_min * (1 << std::min(out.failures++, kDoublingsMax));
  return std::min(pause, std::max(knobs().left_out_max, knobs().left_out_min));
}

bool NextStage::pause_over(const Seat& peer) {
  if (!is_candidate(peer) || !is_pausing(peer)) return false;
  out_[peer.peer].pausing = false;
  return true;
}

bool NextStage::back(const Seat& peer) {
  return is_candidate(peer) && out_.erase(peer.peer) > 0;
}

}  // namespace swarmline
