#include "pipeline/coordinator/steps/sum_hand_overs.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {
constexpr std::size_t kHexDigitsOfHash = 64;

// The same number of pieces as who fetches them counts.
bool has_hashes_of_all(const wire::SumsFrozen& frozen) {
  const std::uint64_t pieces =
      (frozen.bytes() + knobs().state_piece_bytes - 1) / knobs().state_piece_bytes;
  return static_cast<std::uint64_t>(frozen.hashes_size()) == pieces &&
         std::ranges::all_of(frozen.hashes(), [](const std::string& hash) {
           return hash.size() == kHexDigitsOfHash;
         });
}
}  // namespace

// ---- Who ----------------------------------------------------------------------------------------

void SumHandOvers::look() {
  for (const auto& [peer, member] : members_.members()) {
    if (!member.draining || !member.goes_at || !members_.serves(member.seat) ||
        member.in_flight > 0)
      continue;
    for (const Phase& phase : ledger_.open_phases())
      if (phase.kind == PhaseKind::kTrain) consider(member, phase);
  }
}

void SumHandOvers::consider(const Member& member, const Phase& phase) {
  const Key key{phase, member.seat.peer};
  if (phases_.is_sealed(phase)) {
    under_way_.erase(key);  // its taker has let go of it with the seal
    return;
  }
  if (under_way_.contains(key) || owned_by(phase, member.seat).empty() ||
      !ends_too_late(phase, *member.goes_at))
    return;
  const std::optional<Seat> taker = taker_for(key, member);
  if (!taker) return;
  SWARMLINE_MARK("hand_overs.begun");
  under_way_.emplace(key, HandOver{.giver = member.seat, .taker = *taker, .indices = {}});
  wire::GiveSums give;
  *give.mutable_phase() = to_wire(phase);
  outbox_.send(member.seat, make_frame(MessageKind::kGiveSums, give));
}

// As fast as its slowest stage has got on since the first look; nothing is known of a step at
// first.
bool SumHandOvers::ends_too_late(const Phase& phase, Instant goes_at) {
  std::uint32_t owned = ledger_.indices(phase);
  for (const StageSpec& stage : shape_.stages)
    owned = std::min(owned, ledger_.owned(phase, stage.stage));
  const Instant now = alarms_.now();
  const Pace& pace = paces_.try_emplace(phase, Pace{.since = now, .owned = owned}).first->second;
  const Duration left = goes_at - now - knobs().hand_over_margin;
  const Duration watched = now - pace.since;
  if (watched < knobs().hand_over_look && left > 2 * knobs().hand_over_look) return false;
  if (owned <= pace.owned) return true;
  const double seconds_each = to_seconds(watched) / (owned - pace.owned);
  return seconds_each * (ledger_.indices(phase) - owned) > to_seconds(left);
}

// Who holds the stage's state and stays; of these, who takes nothing else yet.
std::optional<Seat> SumHandOvers::taker_for(const Key& key, const Member& giver) const {
  const auto refused = refused_by_.find(key);
  std::optional<Seat> best;
  std::size_t least = 0;
  for (const Seat& seat : members_.staying_of(giver.seat.stage)) {
    if (refused != refused_by_.end() && refused->second.contains(seat.peer)) continue;
    const bool at_risk = members_.members().at(seat.peer).at_risk;
    const auto takes = static_cast<std::size_t>(std::ranges::count_if(
        under_way_, [&](const auto& other) { return other.second.taker == seat; }));
    const std::size_t burden = 2 * takes + (at_risk ? 1 : 0);
    if (best && burden >= least) continue;
    best = seat;
    least = burden;
  }
  return best;
}

std::vector<std::uint32_t> SumHandOvers::owned_by(const Phase& phase, const Seat& seat) const {
  std::vector<std::uint32_t> indices;
  const auto ownership = ledger_.ownership(phase, seat.stage);
  const auto owned = ownership.find(seat.peer);
  if (owned == ownership.end()) return indices;
  for (const IndexRange& range : owned->second)
    for (std::uint32_t i = 0; i < range.count; ++i) indices.push_back(range.first + i);
  return indices;
}

// ---- What they say ------------------------------------------------------------------------------

void SumHandOvers::on_frozen(const Seat& giver, const wire::SumsFrozen& frozen) {
  const Phase phase = from_wire(frozen.phase());
  const Key key{phase, giver.peer};
  const auto entry = under_way_.find(key);
  if (entry == under_way_.end() || entry->second.giver != giver) return;
  std::vector<std::uint32_t> indices;
  for (const wire::Contribution& contribution : frozen.contributions())
    indices.push_back(contribution.index());
  std::ranges::sort(indices);
  const bool whole = frozen.bytes() == shape_.layouts[giver.stage.value].bytes() &&
                     has_hashes_of_all(frozen) && !indices.empty() && !phases_.is_sealed(phase) &&
                     indices == owned_by(phase, giver);
  if (!whole) {
    SWARMLINE_MARK("hand_overs.not_yet");
    under_way_.erase(entry);
    return;
  }
  entry->second.indices = std::move(indices);
  wire::TakeSums take;
  *take.mutable_phase() = to_wire(phase);
  *take.mutable_giver()->mutable_seat() = to_wire(giver);
  take.mutable_giver()->set_address(members_.members().at(giver.peer).address);
  *take.mutable_contributions() = frozen.contributions();
  take.set_bytes(frozen.bytes());
  *take.mutable_hashes() = frozen.hashes();
  outbox_.send(entry->second.taker, make_frame(MessageKind::kTakeSums, take));
}

bool SumHandOvers::on_taken(const Seat& taker, const wire::SumsTaken& taken) {
  const Seat giver = from_wire(taken.giver());
  const Key key{from_wire(taken.phase()), giver.peer};
  const auto entry = under_way_.find(key);
  if (entry == under_way_.end() || entry->second.taker != taker || entry->second.giver != giver ||
      entry->second.indices.empty())
    return false;
  if (taken.refused()) {
    SWARMLINE_MARK("hand_overs.refused");
    refused_by_[key].insert(taker.peer);
    under_way_.erase(entry);
    return false;
  }
  if (phases_.is_sealed(key.first) || entry->second.indices != owned_by(key.first, giver)) {
    SWARMLINE_MARK("hand_overs.too_late");
    call_off(key);
    return false;
  }
  const HandOver moves = std::move(entry->second);
  under_way_.erase(entry);
  move(key, moves);
  return true;
}

void SumHandOvers::move(const Key& key, const HandOver& hand_over) {
  SWARMLINE_MARK("hand_overs.moved");
  const Phase phase = key.first;
  ledger_.hand_over(phase, hand_over.giver.stage, hand_over.giver, hand_over.taker);
  wire::SumsMoved moved;
  *moved.mutable_phase() = to_wire(phase);
  *moved.mutable_giver() = to_wire(hand_over.giver);
  *moved.mutable_taker() = to_wire(hand_over.taker);
  for (const Seat& seat : {hand_over.taker, hand_over.giver})
    outbox_.send(seat, make_frame(MessageKind::kSumsMoved, moved));
  events_.of_peer(hand_over.giver, "peer_handed_over",
                  fmt::format(" gives {} what it has computed of step {}: {} microbatches",
                              events_.who(hand_over.taker), phase.step, hand_over.indices.size()));
}

void SumHandOvers::call_off(const Key& key) {
  const auto entry = under_way_.find(key);
  wire::SumsMoved off;
  *off.mutable_phase() = to_wire(key.first);
  *off.mutable_giver() = to_wire(entry->second.giver);
  outbox_.send(entry->second.taker, make_frame(MessageKind::kSumsMoved, off));
  under_way_.erase(entry);
}

// ---- What calls it off --------------------------------------------------------------------------

// A taker hears of a giver that is lost; a giver keeps its copy for another taker.
void SumHandOvers::on_seat_lost(const SeatLoss& lost) {
  std::erase_if(under_way_, [&](const auto& entry) {
    return entry.second.giver == lost.seat || entry.second.taker == lost.seat;
  });
}

void SumHandOvers::on_rollback() {
  under_way_.clear();
  refused_by_.clear();
  paces_.clear();
}

void SumHandOvers::on_retired(const Phase& phase) {
  const auto of_phase = [&](const auto& entry) { return entry.first.first == phase; };
  std::erase_if(under_way_, of_phase);
  std::erase_if(refused_by_, of_phase);
  paces_.erase(phase);
}

}  // namespace swarmline
