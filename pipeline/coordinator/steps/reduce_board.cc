#include "pipeline/coordinator/steps/reduce_board.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {

bool contains(const ReduceBoard::Members& seats, const Seat& seat) {
  return std::find(seats.begin(), seats.end(), seat) != seats.end();
}

}  // namespace

// Who averaged says what is right; those who fetched do where nobody else is left.
std::map<std::uint64_t, std::size_t> ReduceBoard::Group::votes() const {
  std::map<std::uint64_t, std::size_t> votes;
  for (const auto& [seat, said] : digests)
    if (!contains(keepers, seat)) ++votes[said.digest];
  if (votes.empty())
    for (const auto& [seat, said] : digests) ++votes[said.digest];
  return votes;
}

// Nobody else's reports are among the digests, and no keeper is a member.
bool ReduceBoard::Group::all_reported() const {
  const auto of_keepers = std::ranges::count_if(
      keepers, [this](const Seat& keeper) { return digests.contains(keeper); });
  return digests.size() == members.size() + static_cast<std::size_t>(of_keepers);
}

void ReduceBoard::begin(std::uint64_t step, std::map<GroupId, Members> groups,
                        std::map<GroupId, Members> keepers, RoundAttempt attempt) {
  active_ = true;
  step_ = step;
  reduce_bytes_ = 0;
  groups_.clear();
  for (auto& [group, members] : groups) {
    groups_[group].members = std::move(members);
    groups_[group].attempt = attempt;
  }
  for (auto& [group, seats] : keepers) {
    groups_.at(group).late = seats;
    groups_.at(group).keepers = std::move(seats);
  }
}

bool ReduceBoard::report(const wire::Reduced& reduced) {
  if (!active_ || reduced.phase().eval() || reduced.phase().step() != step_) return false;
  auto it = groups_.find(GroupId{reduced.group()});
  if (it == groups_.end() || it->second.attempt.value != reduced.attempt() || it->second.broken)
    return false;
  Group& group = it->second;
  const Seat seat = from_wire(reduced.seat());
  if (!contains(group.members, seat) && !contains(group.keepers, seat)) return false;
  const Said said{reduced.digest(), reduced.sum_of_squares()};
  if (!group.digests.emplace(seat, said).second) return false;
  std::erase(group.late, seat);
  group.fetching.erase(seat);
  reduce_bytes_ += reduced.reduce_bytes();
  return true;
}

void ReduceBoard::lose(const Seat& seat) {
  for (auto& [id, group] : groups_) {
    const bool averaged = std::erase(group.members, seat) > 0 && !contains(group.late, seat);
    std::erase(group.keepers, seat);
    std::erase(group.late, seat);
    group.fetching.erase(seat);
    const bool held = group.digests.erase(seat) > 0;
    if (group.digests.empty() && (averaged || held)) group.broken = true;
  }
}

bool ReduceBoard::is_member(GroupId id, const Seat& seat) const {
  return contains(groups_.at(id).members, seat);
}

void ReduceBoard::seat_keeper(const Seat& keeper, const Seat& seat) {
  for (auto& [id, group] : groups_) {
    if (std::erase(group.keepers, keeper) == 0) continue;
    std::erase(group.late, keeper);
    group.members.push_back(seat);
    if (auto said = group.digests.extract(keeper); !said.empty())
      group.digests.emplace(seat, said.mapped());
    all_late(id);  // they may have been told of holders that are gone
  }
}

void ReduceBoard::add_late(GroupId id, const Seat& seat) {
  Group& group = groups_.at(id);
  group.members.push_back(seat);
  group.late.push_back(seat);
}

void ReduceBoard::add_keeper(GroupId id, const Seat& keeper) {
  Group& group = groups_.at(id);
  if (contains(group.keepers, keeper)) return;
  group.keepers.push_back(keeper);
  group.late.push_back(keeper);
}

void ReduceBoard::all_late(GroupId id) {
  Group& group = groups_.at(id);
  group.late = missing(id);
  for (const Seat& keeper : group.keepers)
    if (!group.digests.contains(keeper)) group.late.push_back(keeper);
  group.fetching.clear();
}

ReduceBoard::Members ReduceBoard::take_late(GroupId id) {
  Group& group = groups_.at(id);
  if (group.late.empty() || !held(id)) return {};
  const std::size_t places = kFetchersPerHolder * holders(id).size();
  const std::size_t room = places - std::min(places, group.fetching.size());
  const auto end =
      group.late.begin() + static_cast<std::ptrdiff_t>(std::min(room, group.late.size()));
  const Members taken(group.late.begin(), end);
  group.late.erase(group.late.begin(), end);
  group.fetching.insert(taken.begin(), taken.end());
  return taken;
}

void ReduceBoard::give_up(GroupId id, RoundAttempt attempt) {
  auto it = groups_.find(id);
  if (it == groups_.end() || it->second.attempt != attempt || !it->second.digests.empty()) return;
  it->second.broken = true;
}

RoundAttempt ReduceBoard::restart(GroupId id, Members members, Members keepers) {
  Group& group = groups_.at(id);
  SWARMLINE_CHECK(group.broken);
  group.broken = false;
  group.members = std::move(members);
  group.digests.clear();
  group.late = keepers;
  group.keepers = std::move(keepers);
  group.fetching.clear();
  ++group.attempt.value;
  return group.attempt;
}

std::vector<GroupId> ReduceBoard::groups() const {
  std::vector<GroupId> ids;
  for (const auto& [id, group] : groups_) ids.push_back(id);
  return ids;
}

std::vector<GroupId> ReduceBoard::broken() const {
  std::vector<GroupId> ids;
  for (const auto& [id, group] : groups_)
    if (group.broken) ids.push_back(id);
  return ids;
}

std::uint64_t ReduceBoard::digest(GroupId id) const {
  const std::map<std::uint64_t, std::size_t> votes = groups_.at(id).votes();
  SWARMLINE_CHECK(!votes.empty());
  return std::max_element(votes.begin(), votes.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

ReduceBoard::Members ReduceBoard::holders(GroupId id) const {
  Members seats;
  const std::uint64_t wanted = digest(id);
  for (const auto& [seat, said] : groups_.at(id).digests)
    if (said.digest == wanted) seats.push_back(seat);
  return seats;
}

ReduceBoard::Members ReduceBoard::missing(GroupId id) const {
  Members seats;
  const Group& group = groups_.at(id);
  for (const Seat& seat : group.members)
    if (!group.digests.contains(seat)) seats.push_back(seat);
  return seats;
}

ReduceBoard::Members ReduceBoard::settle_differences(GroupId id) {
  Group& group = groups_.at(id);
  if (group.broken || group.members.empty() || !group.all_reported()) return {};
  const std::uint64_t right = digest(id);
  if (2 * group.votes().at(right) <= group.members.size()) {
    group.digests.clear();
    group.broken = true;
    return {};
  }
  Members wrong;
  for (const auto& [seat, said] : group.digests)
    if (said.digest != right) wrong.push_back(seat);
  for (const Seat& seat : wrong) group.digests.erase(seat);
  for (const Seat& keeper : group.keepers)
    if (contains(wrong, keeper)) group.late.push_back(keeper);
  std::erase_if(wrong, [&](const Seat& seat) { return contains(group.keepers, seat); });
  return wrong;
}

bool ReduceBoard::kept() const {
  std::map<Seat, bool> has_all;
  for (const auto& [id, group] : groups_)
    for (const Seat& keeper : group.keepers)
      has_all.try_emplace(keeper, true).first->second &= group.digests.contains(keeper);
  std::map<StageId, bool> kept;
  for (const auto& [keeper, has] : has_all) kept[keeper.stage] |= has;
  return std::ranges::all_of(kept, [](const auto& entry) { return entry.second; });
}

bool ReduceBoard::done() const {
  return active_ && kept() &&
         std::all_of(groups_.begin(), groups_.end(), [this](const auto& entry) {
           const Group& group = entry.second;
           return !group.broken && !group.members.empty() && group.all_reported() &&
                  holders(entry.first).size() == group.digests.size();
         });
}

double ReduceBoard::sum_of_squares() const {
  double sum = 0;
  for (const auto& [id, group] : groups_) sum += sum_of_squares(id);
  return sum;
}

// They hold the same bits, and so all that compute say the same: what most say. One that says
// otherwise does not decide how the others' step is clipped.
double ReduceBoard::sum_of_squares(GroupId id) const {
  const auto said_by = [&](const Seat& seat) {
    return std::bit_cast<std::uint64_t>(groups_.at(id).digests.at(seat).sum_of_squares);
  };
  const Members all = holders(id);
  std::uint64_t most = said_by(all.front());
  std::map<std::uint64_t, std::size_t> says;
  for (const Seat& seat : all)
    if (++says[said_by(seat)] > says[most]) most = said_by(seat);
  if (says.size() > 1) SWARMLINE_MARK("reduce_board.norms_differ");
  return std::bit_cast<double>(most);
}

std::vector<GroupResult> ReduceBoard::results() const {
  std::vector<GroupResult> results;
  for (const auto& [id, group] : groups_)
    results.push_back({.group = id, .attempt = group.attempt, .digest = digest(id)});
  return results;
}

std::vector<Seat> ReduceBoard::missing() const {
  std::vector<Seat> seats;
  for (const auto& [id, group] : groups_)
    for (const Seat& seat : missing(id)) seats.push_back(seat);
  return seats;
}

void ReduceBoard::check_invariants() const {
  for (const auto& [id, group] : groups_) {
    SWARMLINE_CHECK(group.all_reported() == missing(id).empty());
    for (const auto& [seat, said] : group.digests)
      SWARMLINE_CHECK(contains(group.members, seat) != contains(group.keepers, seat));
  }
}

}  // namespace swarmline
