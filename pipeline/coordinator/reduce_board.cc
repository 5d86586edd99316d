#include "pipeline/coordinator/reduce_board.h"

#include <algorithm>

#include <fmt/format.h>

#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

void ReduceBoard::begin(std::uint64_t step, std::map<std::uint32_t, std::vector<Seat>> groups) {
  active_ = true;
  step_ = step;
  reduce_bytes_ = 0;
  groups_.clear();
  for (auto& [group, members] : groups) groups_[group].members = std::move(members);
}

Result<bool> ReduceBoard::report(const wire::Reduced& reduced) {
  if (!active_ || reduced.phase().eval() || reduced.phase().step() != step_) return false;
  auto it = groups_.find(reduced.group());
  if (it == groups_.end()) return false;
  Group& group = it->second;
  const Seat seat = from_wire(reduced.seat());
  if (std::find(group.members.begin(), group.members.end(), seat) == group.members.end())
    return false;
  if (!group.digests.empty() && group.digests.begin()->second != reduced.digest())
    return fail(ErrorCode::kIncompatible,
                fmt::format("{} and {} ended the averaging of step {} with different gradients",
                            to_string(group.digests.begin()->first), to_string(seat), step_));
  if (!group.digests.emplace(seat, reduced.digest()).second) return false;
  group.sum_of_squares = reduced.sum_of_squares();
  reduce_bytes_ += reduced.reduce_bytes();
  return true;
}

bool ReduceBoard::group_done(std::uint32_t group) const {
  auto it = groups_.find(group);
  return it != groups_.end() && it->second.digests.size() == it->second.members.size();
}

bool ReduceBoard::done() const {
  return active_ && std::all_of(groups_.begin(), groups_.end(),
                                [this](const auto& entry) { return group_done(entry.first); });
}

double ReduceBoard::sum_of_squares() const {
  double sum = 0;
  for (const auto& [id, group] : groups_) sum += group.sum_of_squares;
  return sum;
}

std::vector<wire::GroupDigest> ReduceBoard::digests() const {
  std::vector<wire::GroupDigest> digests;
  for (const auto& [id, group] : groups_) {
    wire::GroupDigest& digest = digests.emplace_back();
    digest.set_group(id);
    digest.set_digest(group.digests.begin()->second);
  }
  return digests;
}

std::vector<Seat> ReduceBoard::missing() const {
  std::vector<Seat> seats;
  for (const auto& [id, group] : groups_)
    for (const Seat& seat : group.members)
      if (!group.digests.contains(seat)) seats.push_back(seat);
  return seats;
}

}  // namespace swarmline
