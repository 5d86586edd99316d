#include "pipeline/stage/common/piece_fetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/limits.h"
#include "base/marks.h"
#include "engine/checkpoint/sha256.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

PieceFetch::PieceFetch(std::uint64_t bytes, std::vector<std::string> hashes)
    : buffer_(bytes), hashes_(std::move(hashes)), patience_(knobs().piece_time) {
  const std::uint64_t pieces = (bytes + Limits::state_piece_bytes - 1) / Limits::state_piece_bytes;
  left_ = static_cast<std::uint32_t>(pieces);
  pieces_.assign(pieces, State::kWanted);
}

std::uint64_t PieceFetch::length(std::uint32_t piece) const {
  const std::uint64_t first = std::uint64_t{piece} * Limits::state_piece_bytes;
  return std::min<std::uint64_t>(Limits::state_piece_bytes, buffer_.size() - first);
}

void PieceFetch::add_holder(const Seat& holder) {
  if (!refused_.contains(holder) && !resting_.contains(holder) && !late_.contains(holder))
    holders_.try_emplace(holder);
}

bool PieceFetch::forgive_damaged() {
  damaged_in_a_row_.clear();
  for (const Seat& holder : resting_) holders_.try_emplace(holder);
  return !std::exchange(resting_, {}).empty();
}

void PieceFetch::asked(const Seat& holder, Instant now) {
  asked_[holder] = now;
}

std::vector<Seat> PieceFetch::drop_late(Instant now) {
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

void PieceFetch::leave(const Seat& holder) {
  if (!holders_.contains(holder)) return;
  drop(holder);
  late_.insert(holder);
}

bool PieceFetch::forgive_late() {
  for (const Seat& holder : late_) holders_.try_emplace(holder);
  return !std::exchange(late_, {}).empty();
}

std::vector<PieceFetch::Ask> PieceFetch::asks(std::size_t under_way_max) {
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
      while (first_wanted_ < pieces_.size() && pieces_[first_wanted_] != State::kWanted)
        ++first_wanted_;
      if (first_wanted_ == pieces_.size() || under_way >= under_way_max) return asks;
      ++under_way;
      pieces_[first_wanted_] = State::kAsked;
      asked.insert(first_wanted_);
      asks.push_back({holder, first_wanted_});
      progress = true;
    }
  }
  return asks;
}

bool PieceFetch::on_piece(const Seat& from, std::uint32_t piece, BytesView bytes,
                          std::uint64_t checksum) {
  if (late_.erase(from) > 0) {  // it answers after all
    holders_.try_emplace(from);
    if (piece < pieces_.size() && pieces_[piece] != State::kHere) holders_.at(from).insert(piece);
  }
  const auto holder = holders_.find(from);
  if (piece >= pieces_.size() || pieces_[piece] == State::kHere || holder == holders_.end() ||
      !holder->second.contains(piece))
    return false;
  if (bytes.size() != length(piece) || xxh3(bytes) != checksum) {
    note_damage(from, piece);
    return false;
  }
  if (!hashes_.empty() && sha256_hex(bytes) != hashes_[piece]) {
    refuse(from);
    return false;
  }
  damaged_in_a_row_.erase(from);
  cut_off_.erase(from);
  for (auto& [seat, asked] : holders_) asked.erase(piece);
  std::memcpy(buffer_.data() + std::uint64_t{piece} * Limits::state_piece_bytes, bytes.data(),
              bytes.size());
  pieces_[piece] = State::kHere;
  --left_;
  ++served_[from.peer];
  return true;
}

// On the way, most likely: whoever sent it has it whole.
void PieceFetch::note_damage(const Seat& holder, std::uint32_t piece) {
  holders_.at(holder).erase(piece);
  want(piece);
  if (++damaged_in_a_row_[holder] < knobs().damaged_in_a_row) return;
  drop(holder);
  resting_.insert(holder);
}

void PieceFetch::want(std::uint32_t piece) {
  pieces_[piece] = State::kWanted;
  first_wanted_ = std::min(first_wanted_, piece);
}

void PieceFetch::drop(const Seat& holder) {
  const auto asked = holders_.extract(holder);
  if (asked.empty()) return;
  for (std::uint32_t piece : asked.mapped()) want(piece);
}

void PieceFetch::refuse(const Seat& holder) {
  drop(holder);
  resting_.erase(holder);
  late_.erase(holder);
  refused_.insert(holder);
}

void PieceFetch::on_missing(const Seat& from) {
  if (holders_.contains(from) || late_.contains(from)) refuse(from);
}

void PieceFetch::on_lost(const Seat& lost) {
  std::set<Seat> over;
  for (const auto& [holder, asked] : holders_)
    if (is_over_with(holder, lost)) over.insert(holder);
  for (const Seat& holder : resting_)
    if (is_over_with(holder, lost)) over.insert(holder);
  for (const Seat& holder : late_)
    if (is_over_with(holder, lost)) over.insert(holder);
  for (const Seat& holder : over) refuse(holder);
}

void PieceFetch::on_link_lost(const Seat& from) {
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
