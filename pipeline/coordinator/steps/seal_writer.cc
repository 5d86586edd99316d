#include "pipeline/coordinator/steps/seal_writer.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

void SealWriter::send(const ReduceBoard& board, const Phase& phase,
                      const std::vector<GroupId>& groups) {
  std::map<Seat, wire::Seal> seals;
  for (const GroupId group : groups) {
    check_owners(board, phase, group);
    const std::optional<wire::ReduceGroup> by_lists = group_by_lists(board, group);
    std::optional<wire::ReduceGroup> by_name;
    for (const Seat& seat : board.members(group)) {
      const bool short_of_it = by_lists && has_lists(seat, group);
      if (!short_of_it && !by_name) by_name = group_by_name(board, group);
      *seals[seat].add_groups() = short_of_it ? *by_lists : *by_name;
    }
  }
  std::map<StageId, std::map<PeerId, std::vector<IndexRange>>> ownership;
  for (auto& [seat, seal] : seals) {
    *seal.mutable_phase() = to_wire(phase);
    auto [stage, first] = ownership.try_emplace(seat.stage);
    if (first) stage->second = in_.ledger.ownership(phase, seat.stage);
    for (const IndexRange& range : stage->second[seat.peer]) {
      wire::Range* owned = seal.add_owned();
      owned->set_first(range.first);
      owned->set_count(range.count);
    }
    in_.outbox.send(seat, make_frame(MessageKind::kSeal, seal));
  }
}

// What somebody else owned would be in no sum.
void SealWriter::check_owners(const ReduceBoard& board, const Phase& phase, GroupId group) const {
  const ReduceBoard::Members& averaging = board.members(group);
  const std::set<Seat> members(averaging.begin(), averaging.end());
  for (const StageId stage : in_.shape.groups.stages_of(group))
    for (const Seat& owner : in_.ledger.owners(phase, stage))
      SWARMLINE_CHECK_MSG(members.contains(owner),
                          to_string(owner) + " owns microbatches and does not average");
}

wire::ReduceGroup SealWriter::group_by_name(const ReduceBoard& board, GroupId id) const {
  SWARMLINE_MARK("seal_writer.members_named");
  const ReduceBoard::Members& members = board.members(id);
  wire::ReduceGroup group;
  group.set_group(id.value);
  group.set_attempt(board.attempt(id).value);
  for (const Seat& seat : members) {
    wire::GroupMember* member = group.add_members();
    *member->mutable_seat() = to_wire(seat);
    member->set_address(in_.members.members().at(seat.peer).address);
  }
  return group;
}

// Its members are those of the lists that they have: named by these, a seal is as short for a
// thousand as for two.
std::optional<wire::ReduceGroup> SealWriter::group_by_lists(const ReduceBoard& board,
                                                            GroupId id) const {
  const RosterDesk& rosters = in_.members.rosters();
  const ReduceBoard::Members& members = board.members(id);
  wire::ReduceGroup group;
  group.set_group(id.value);
  group.set_attempt(board.attempt(id).value);
  auto member = members.begin();
  for (const StageId stage : in_.shape.groups.stages_of(id)) {
    wire::RosterName* list = group.add_rosters();
    list->set_stage(stage.value);
    list->set_serial(rosters.serial(stage));
    for (const auto& [seat, address] : rosters.serving(stage))
      if (member == members.end() || *member++ != seat) return std::nullopt;
  }
  if (member != members.end()) return std::nullopt;
  return group;
}

bool SealWriter::has_lists(const Seat& seat, GroupId id) const {
  return std::ranges::all_of(in_.shape.groups.stages_of(id),
                             [&](StageId stage) { return in_.members.rosters().has(seat, stage); });
}

}  // namespace swarmline
