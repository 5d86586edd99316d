// What the groups of a sealed step report: every member of a group must end with the same bits, and
// a member that is lost takes nothing with it that another one holds. Pure.
//   A group is averaging (nobody has reported its attempt), held (some member has the result: it
//   owns its contributions while one holder lives), or broken (a member went before anybody had the
//   result: it needs another attempt, with whoever is left and what they hold).
//   A member seated since the round began waits for its result: it is late, and fetches it. So are
//   those whose averaging may not end after a loss. A few fetch at a time, each of which is one
//   more to fetch from.
//   Keepers are shadows of the group's stages: not averaged with, they fetch the result as those do
//   who are late, and the step is not done before one of each stage that has any says that it has
//   the results of all of its stage's groups: it alone may be left of them.
//   Reports of other steps, groups, attempts or strangers are ignored.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

// What a group averaged to.
struct GroupResult {
  GroupId group;
  RoundAttempt attempt;
  std::uint64_t digest = 0;
};

class ReduceBoard {
 public:
  using Members = std::vector<Seat>;
  static constexpr std::size_t kFetchersPerHolder = 2;

  // `attempt`: of every group's first averaging.
  void begin(std::uint64_t step, std::map<GroupId, Members> groups,
             std::map<GroupId, Members> keepers = {}, RoundAttempt attempt = {});
  // True when the report counts: a member's or keeper's first one of this attempt.
  bool report(const wire::Reduced& reduced);
  // The seat is over. Groups it was a member of lose it and what it reported.
  void lose(const Seat& seat);
  // Seated at a stage of the group while it averages.
  void add_late(GroupId group, const Seat& seat);
  void add_keeper(GroupId group, const Seat& keeper);
  // A keeper sits down at the stage, with what it has fetched.
  void seat_keeper(const Seat& keeper, const Seat& seat);
  // Members and keepers that have not reported are late, whatever it was told before.
  void all_late(GroupId group);
  bool has_late(GroupId group) const { return !groups_.at(group).late.empty(); }
  // Late members and keepers that shall fetch the result now: kFetchersPerHolder at
  // a time.
  Members take_late(GroupId group);
  // This attempt can't end (a link broke, bits differ): broken, unless somebody has the result.
  void give_up(GroupId group, RoundAttempt attempt);
  // A broken group's next attempt; returns its number.
  RoundAttempt restart(GroupId group, Members members, Members keepers = {});
  void end() { active_ = false; }

  bool active() const { return active_; }
  std::uint64_t step() const { return step_; }
  bool has(GroupId group) const { return groups_.contains(group); }
  std::vector<GroupId> groups() const;  // of the step, in order
  std::vector<GroupId> broken() const;
  bool held(GroupId group) const { return !groups_.at(group).digests.empty(); }
  bool done() const;  // all members of all groups have the same bits
  RoundAttempt attempt(GroupId group) const { return groups_.at(group).attempt; }
  const Members& members(GroupId group) const { return groups_.at(group).members; }
  bool is_member(GroupId group, const Seat& seat) const;
  bool has_reported(GroupId group, const Seat& seat) const {
    return groups_.at(group).digests.contains(seat);
  }
  Members holders(GroupId group) const;       // those with digest()
  Members missing(GroupId group) const;       // members that have not reported
  std::uint64_t digest(GroupId group) const;  // of a held group: what most holders have
  // Members whose bits differ from what most have; they count as missing from now on, and keepers
  // that fetched such bits as late. A tie breaks the group. Empty while reports are missing.
  Members settle_differences(GroupId group);

  double sum_of_squares() const;  // groups in order, each once
  double sum_of_squares(GroupId id) const;
  std::vector<GroupResult> results() const;
  std::uint64_t reduce_bytes() const { return reduce_bytes_; }
  std::vector<Seat> missing() const;  // of all groups
  void check_invariants() const;

 private:
  struct Said {
    std::uint64_t digest = 0;
    double sum_of_squares = 0;
  };
  struct Group {
    RoundAttempt attempt;
    Members members;
    Members keepers;
    std::map<Seat, Said> digests;
    Members late;
    std::set<Seat> fetching;
    bool broken = false;

    std::map<std::uint64_t, std::size_t> votes() const;
    bool all_reported() const;  // the members; O(keepers)
  };
  bool kept() const;

  bool active_ = false;
  std::uint64_t step_ = 0;
  std::uint64_t reduce_bytes_ = 0;
  std::map<GroupId, Group> groups_;
};

}  // namespace swarmline
