#include "pipeline/coordinator/members/roster_desk.h"

#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

namespace {
void name(wire::Roster& roster, const std::pair<const Seat, std::string>& member) {
  wire::GroupMember* named = roster.add_members();
  *named->mutable_seat() = to_wire(member.first);
  named->set_address(member.second);
}
}  // namespace

bool RosterDesk::update(StageId stage, const Addresses& serving) {
  List& list = lists_[stage];
  if (list.serving == serving) return false;
  wire::Roster change;
  for (const auto& [seat, address] : list.serving)
    if (!serving.contains(seat)) *change.add_gone() = to_wire(seat);
  for (const auto& member : serving)
    if (!list.serving.contains(member.first)) name(change, member);
  wire::Roster all;
  for (const auto& member : serving) name(all, member);
  change.set_base(list.serial);
  list.serving = serving;
  ++list.serial;
  for (wire::Roster* roster : {&change, &all}) {
    roster->set_stage(stage.value);
    roster->set_serial(list.serial);
  }
  list.change = std::move(change);
  list.all = std::move(all);
  return true;
}

std::uint64_t RosterDesk::serial(StageId stage) const {
  const auto list = lists_.find(stage);
  return list == lists_.end() ? 0 : list->second.serial;
}

const RosterDesk::Addresses& RosterDesk::serving(StageId stage) const {
  static const Addresses kNobody;
  const auto list = lists_.find(stage);
  return list == lists_.end() ? kNobody : list->second.serving;
}

std::optional<wire::Roster> RosterDesk::news_for(const Seat& reader, StageId stage) {
  const auto list = lists_.find(stage);
  if (list == lists_.end()) return std::nullopt;
  std::uint64_t& told = told_[reader][stage];
  if (told == list->second.serial) return std::nullopt;
  // The first list has nothing before it that one could have.
  const bool changes = told != 0 && told + 1 == list->second.serial;
  if (changes) SWARMLINE_MARK("roster_desk.change_told");
  told = list->second.serial;
  return changes ? list->second.change : list->second.all;
}

bool RosterDesk::has(const Seat& reader, StageId stage) const {
  const auto told = told_.find(reader);
  if (told == told_.end()) return false;
  const auto list = told->second.find(stage);
  return list != told->second.end() && list->second == serial(stage);
}

void RosterDesk::forget(PeerId reader) {
  const auto first = told_.lower_bound(Seat{reader, StageId{0}, Incarnation{0}});
  auto last = first;
  while (last != told_.end() && last->first.peer == reader) ++last;
  told_.erase(first, last);
}

}  // namespace swarmline
