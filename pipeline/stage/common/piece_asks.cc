#include "pipeline/stage/common/piece_asks.h"

#include <algorithm>
#include <utility>

#include "base/marks.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

PieceAsks::PieceAsks(std::uint32_t wrong_max)
    : wrong_max_(wrong_max), patience_(knobs().piece_time) {}

void PieceAsks::want(std::uint32_t piece) {
  if (outstanding_.insert(piece).second) unasked_.insert(piece);
}

void PieceAsks::want_no_more(std::uint32_t piece) {
  outstanding_.erase(piece);
  unasked_.erase(piece);
  for (auto& [holder, asked] : holders_) asked.erase(piece);
}

// ---- Who is asked -------------------------------------------------------------------------------

void PieceAsks::forgive() {
  refused_.clear();
  wrong_.clear();
  wrong_times_.clear();
}

void PieceAsks::add_holder(const Seat& holder) {
  if (!refused_.contains(holder) && !resting_.contains(holder) && !late_.contains(holder))
    holders_.try_emplace(holder);
}

bool PieceAsks::forgive_damaged() {
  damaged_in_a_row_.clear();
  for (const Seat& holder : resting_) holders_.try_emplace(holder);
  return !std::exchange(resting_, {}).empty();
}

void PieceAsks::asked(const Seat& holder, Instant now) {
  asked_[holder] = now;
}

std::vector<Seat> PieceAsks::drop_late(Instant now) {
  std::vector<Seat> late;
  for (const auto& [holder, pieces] : holders_)
    if (const auto since = asked_.find(holder);
        !pieces.empty() && since != asked_.end() && now - since->second > patience_)
      late.push_back(holder);
  if (late.empty()) return late;
  SWARMLINE_MARK("piece_fetch.holder_does_not_answer");
  for (const Seat& holder : late) leave(holder);
  patience_ = std::min<Duration>(2 * patience_, kPatienceMax);
  return late;
}

void PieceAsks::leave(const Seat& holder) {
  if (!holders_.contains(holder)) return;
  drop(holder);
  late_.insert(holder);
}

bool PieceAsks::forgive_late() {
  for (const Seat& holder : late_) holders_.try_emplace(holder);
  return !std::exchange(late_, {}).empty();
}

bool PieceAsks::others_may_have(std::uint32_t piece, const Seat& holder) const {
  return std::ranges::any_of(holders_, [&](const auto& entry) {
    const auto sent = wrong_.find(entry.first);
    return entry.first != holder && (sent == wrong_.end() || !sent->second.contains(piece));
  });
}

// What it has sent wrongly others are asked for.
std::optional<std::uint32_t> PieceAsks::next_for(const Seat& holder) const {
  const auto sent = wrong_.find(holder);
  for (const std::uint32_t piece : unasked_)
    if (sent == wrong_.end() || !sent->second.contains(piece) || !others_may_have(piece, holder))
      return piece;
  return std::nullopt;
}

std::vector<PieceAsks::Ask> PieceAsks::asks(std::size_t under_way_max) {
  std::vector<Ask> asks;
  std::size_t under_way = 0;
  std::vector<Seat> order;
  for (const auto& [holder, asked] : holders_) {
    under_way += asked.size();
    order.push_back(holder);
  }
  std::ranges::sort(order, {}, [this](const Seat& holder) {
    const auto served = served_.find(holder.peer);
    return std::pair(served == served_.end() ? 0U : served->second, holder);
  });
  // One at a time round the holders, so that all are at work from the first piece on.
  for (bool progress = true; progress;) {
    progress = false;
    for (const Seat& holder : order) {
      std::set<std::uint32_t>& asked = holders_.at(holder);
      if (asked.size() >= kWindow) continue;
      if (unasked_.empty() || under_way >= under_way_max) return asks;
      const std::optional<std::uint32_t> piece = next_for(holder);
      if (!piece) continue;
      ++under_way;
      unasked_.erase(*piece);
      asked.insert(*piece);
      asks.push_back({holder, *piece});
      progress = true;
    }
  }
  return asks;
}

// ---- What comes ---------------------------------------------------------------------------------

bool PieceAsks::takes(const Seat& from, std::uint32_t piece) {
  if (late_.erase(from) > 0) {  // it answers after all
    holders_.try_emplace(from);
    if (wants(piece)) holders_.at(from).insert(piece);
  }
  const auto holder = holders_.find(from);
  return wants(piece) && holder != holders_.end() && holder->second.contains(piece);
}

void PieceAsks::here(const Seat& from, std::uint32_t piece) {
  damaged_in_a_row_.erase(from);
  cut_off_.erase(from);
  want_no_more(piece);
  ++served_[from.peer];
}

void PieceAsks::damaged(const Seat& from, std::uint32_t piece) {
  if (const auto holder = holders_.find(from); holder != holders_.end())
    holder->second.erase(piece);
  if (wants(piece)) unasked_.insert(piece);
  if (++damaged_in_a_row_[from] < knobs().damaged_in_a_row) return;
  drop(from);
  resting_.insert(from);
}

void PieceAsks::wrong(const Seat& from, std::uint32_t piece) {
  if (const auto holder = holders_.find(from); holder != holders_.end())
    holder->second.erase(piece);
  if (wants(piece)) unasked_.insert(piece);
  wrong_[from].insert(piece);
  if (++wrong_times_[from] >= wrong_max_) refuse(from);
}

void PieceAsks::drop(const Seat& holder) {
  const auto asked = holders_.extract(holder);
  if (asked.empty()) return;
  for (const std::uint32_t piece : asked.mapped())
    if (wants(piece)) unasked_.insert(piece);
}

void PieceAsks::refuse(const Seat& holder) {
  drop(holder);
  resting_.erase(holder);
  late_.erase(holder);
  refused_.insert(holder);
}

void PieceAsks::on_missing(const Seat& from) {
  if (holders_.contains(from) || late_.contains(from)) refuse(from);
}

void PieceAsks::on_lost(const Seat& lost) {
  std::set<Seat> over;
  for (const auto& [holder, asked] : holders_)
    if (is_over_with(holder, lost)) over.insert(holder);
  for (const Seat& holder : resting_)
    if (is_over_with(holder, lost)) over.insert(holder);
  for (const Seat& holder : late_)
    if (is_over_with(holder, lost)) over.insert(holder);
  for (const Seat& holder : over) refuse(holder);
}

void PieceAsks::forget(const Seat& lost) {
  on_lost(lost);
  const auto is_over = [&](const Seat& seat) { return is_over_with(seat, lost); };
  const auto entry_is_over = [&](const auto& entry) { return is_over(entry.first); };
  std::erase_if(refused_, is_over);
  std::erase_if(cut_off_, is_over);
  std::erase_if(damaged_in_a_row_, entry_is_over);
  std::erase_if(wrong_, entry_is_over);
  std::erase_if(wrong_times_, entry_is_over);
  std::erase_if(asked_, entry_is_over);
  served_.erase(lost.peer);
}

void PieceAsks::on_link_lost(const Seat& from) {
  const auto holder = holders_.find(from);
  if (holder == holders_.end() || holder->second.empty()) return;
  if (!cut_off_.insert(from).second) {
    SWARMLINE_MARK("piece_fetch.holder_out_of_reach");
    return leave(from);
  }
  drop(from);
  add_holder(from);
}

}  // namespace swarmline
