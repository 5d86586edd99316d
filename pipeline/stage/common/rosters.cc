#include "pipeline/stage/common/rosters.h"

#include <utility>

#include <fmt/format.h>

#include "base/limits.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

Result<void> Rosters::apply(const wire::Roster& news) {
  const StageId stage{static_cast<std::uint16_t>(news.stage())};
  const auto held = lists_.find(stage);
  if (held == lists_.end() && lists_.size() >= kListsMax)
    return fail(ErrorCode::kCorrupt, fmt::format("a list of stage {}", news.stage()));
  List next;
  if (news.base() != 0) {
    if (held == lists_.end() || held->second.serial != news.base())
      return fail(ErrorCode::kCorrupt,
                  fmt::format("a change to list {} of stage {}, which this peer does not have",
                              news.base(), news.stage()));
    next.serving = held->second.serving;
  }
  next.serial = news.serial();
  for (const wire::Seat& gone : news.gone()) next.serving.erase(from_wire(gone));
  for (const wire::GroupMember& member : news.members())
    next.serving[from_wire(member.seat())] = member.address();
  if (next.serving.size() > static_cast<std::size_t>(Limits::stage_peers_max))
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} peers serve stage {}", next.serving.size(), news.stage()));
  lists_[stage] = std::move(next);
  return {};
}

const std::map<Seat, std::string>& Rosters::serving(StageId stage) const {
  static const std::map<Seat, std::string> kNobody;
  const auto held = lists_.find(stage);
  return held == lists_.end() ? kNobody : held->second.serving;
}

Result<void> Rosters::name_members(wire::Seal& seal) const {
  for (wire::ReduceGroup& group : *seal.mutable_groups()) {
    for (const wire::RosterName& list : group.rosters()) {
      const auto held = lists_.find(StageId{static_cast<std::uint16_t>(list.stage())});
      if (held == lists_.end() || held->second.serial != list.serial())
        return fail(ErrorCode::kCorrupt,
                    fmt::format("a seal by list {} of stage {}, which this peer does not have",
                                list.serial(), list.stage()));
      for (const auto& [seat, address] : held->second.serving) {
        wire::GroupMember* member = group.add_members();
        *member->mutable_seat() = to_wire(seat);
        member->set_address(address);
      }
    }
    group.clear_rosters();
  }
  return {};
}

}  // namespace swarmline
