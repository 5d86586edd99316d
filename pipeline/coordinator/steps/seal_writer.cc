#include "pipeline/coordinator/steps/seal_writer.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/marks.h"
#include "pipeline/coordinator/steps/islands.h"
#include "pipeline/coordinator/steps/uneven_slices.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

// One seal at a time: those of ten thousand peers together take a hundred megabytes.
void SealWriter::send(const ReduceBoard& board, const Phase& phase,
                      const std::vector<GroupId>& groups) {
  std::map<GroupId, Forms> forms;
  std::map<Seat, std::vector<GroupId>> groups_of;
  for (const GroupId group : groups) {
    check_owners(board, phase, group);
    Forms& told = forms[group];
    told.alike = group_alike(board, group);
    told.by_lists = group_by_lists(board.members(group), told.alike);
    for (const Seat& seat : board.members(group)) groups_of[seat].push_back(group);
  }
  std::map<StageId, std::map<PeerId, std::vector<IndexRange>>> ownership;
  for (const auto& [seat, its_groups] : groups_of) {
    auto [stage, first] = ownership.try_emplace(seat.stage);
    if (first) stage->second = in_.ledger.ownership(phase, seat.stage);
    wire::Seal seal;
    *seal.mutable_phase() = to_wire(phase);
    for (const GroupId group : its_groups)
      *seal.add_groups() = form_for(seat, board, group, forms.at(group));
    for (const IndexRange& range : stage->second[seat.peer]) {
      wire::Range* owned = seal.add_owned();
      owned->set_first(range.first);
      owned->set_count(range.count);
    }
    in_.outbox.send(seat, make_frame(MessageKind::kSeal, seal));
  }
}

const wire::ReduceGroup& SealWriter::form_for(const Seat& seat, const ReduceBoard& board,
                                              GroupId group, Forms& forms) const {
  if (forms.by_lists && has_lists(seat, group)) return *forms.by_lists;
  if (!forms.by_name) forms.by_name = group_by_name(board.members(group), forms.alike);
  return *forms.by_name;
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

wire::ReduceGroup SealWriter::group_alike(const ReduceBoard& board, GroupId id) const {
  wire::ReduceGroup group;
  group.set_group(id.value);
  group.set_attempt(board.attempt(id).value);
  const ReduceBoard::Members& members = board.members(id);
  const std::vector<std::uint32_t> speakers = speakers_of(members);
  group.mutable_speakers()->Add(speakers.begin(), speakers.end());
  std::vector<double> bandwidths;  // of those who speak
  for (std::uint32_t rank = 0; rank < members.size(); ++rank)
    if (speakers.empty() || speakers[rank] == rank)
      bandwidths.push_back(in_.members.members().at(members[rank].peer).bandwidth);
  for (const std::uint64_t end : uneven_slice_ends(in_.shape.elements_of(id), bandwidths))
    group.add_slice_ends(end);
  return group;
}

std::vector<std::uint32_t> SealWriter::speakers_of(const ReduceBoard::Members& members) const {
  if (in_.shape.config.net.islands == Islands::kNone) return {};
  std::vector<std::string> hosts;
  for (const Seat& seat : members) hosts.push_back(in_.members.members().at(seat.peer).host);
  return islands_of(hosts);
}

wire::ReduceGroup SealWriter::group_by_name(const ReduceBoard::Members& members,
                                            const wire::ReduceGroup& alike) const {
  SWARMLINE_MARK("seal_writer.members_named");
  wire::ReduceGroup group = alike;
  for (const Seat& seat : members) {
    wire::GroupMember* member = group.add_members();
    *member->mutable_seat() = to_wire(seat);
    member->set_address(in_.members.members().at(seat.peer).address);
  }
  return group;
}

// Its members are those of the lists that they have: named by these, a seal is as short for a
// thousand as for two.
std::optional<wire::ReduceGroup> SealWriter::group_by_lists(const ReduceBoard::Members& members,
                                                            const wire::ReduceGroup& alike) const {
  const RosterDesk& rosters = in_.members.rosters();
  wire::ReduceGroup group = alike;
  auto member = members.begin();
  for (const StageId stage : in_.shape.groups.stages_of(GroupId{alike.group()})) {
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
