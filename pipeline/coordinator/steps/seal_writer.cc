#include "pipeline/coordinator/steps/seal_writer.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/marks.h"
#include "compression/codec.h"
#include "engine/model/device_optimizer.h"
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

wire::ReduceGroup SealWriter::group_alike(const ReduceBoard& board, GroupId id) {
  wire::ReduceGroup group;
  group.set_group(id.value);
  group.set_attempt(board.attempt(id).value);
  const ReduceBoard::Members& members = board.members(id);
  const auto [speakers, fabrics] = islands(id, members);
  group.mutable_speakers()->Add(speakers.begin(), speakers.end());
  for (const FabricKind kind : fabrics.kinds) group.add_fabrics(static_cast<std::uint32_t>(kind));
  if (!fabrics.kinds.empty()) group.set_meeting(fabrics.meeting);
  std::vector<double> bandwidths;  // of those who speak
  for (std::uint32_t rank = 0; rank < members.size(); ++rank)
    if (speakers.empty() || speakers[rank] == rank)
      bandwidths.push_back(in_.members.members().at(members[rank].peer).bandwidth);
  for (const std::uint64_t end : uneven_slice_ends(in_.shape.elements_of(id), bandwidths))
    group.add_slice_ends(end);
  return group;
}

// An island of all is worth it where its bytes go past links: there nothing else averages.
SealWriter::Told SealWriter::islands(GroupId id, const ReduceBoard::Members& members) {
  if (in_.shape.config.net.islands == Islands::kNone) return {};
  std::vector<std::string> hosts;
  std::vector<GpuIdentity> gpus;
  for (const Seat& seat : members) {
    const Member& member = in_.members.members().at(seat.peer);
    hosts.push_back(member.host);
    gpus.push_back(may_have_fabrics() ? member.gpu : GpuIdentity());
  }
  std::vector<std::uint32_t> speakers = islands_of(hosts);
  const bool together = speakers.empty() && all_on_one(hosts);
  if (together) speakers.assign(members.size(), 0);
  if (speakers.empty()) return {};
  IslandFabrics::Told fabrics =
      fabrics_.tell(id, in_.shape.elements_of(id), members, speakers, gpus);
  if (together && fabrics.kinds.empty()) return {};
  return {std::move(speakers), std::move(fabrics)};
}

// Sums are where the steps are made; residuals are the host's where there are islands.
bool SealWriter::may_have_fabrics() const {
  const RunConfig& config = in_.shape.config;
  return config.net.fabric != FabricChoice::kNone && steps_on_device(config.optimizer) &&
         !config.codec.error_feedback && config.codec.averaging != name_of(CodecKind::kTopK);
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
