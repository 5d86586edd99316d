// Rounds that break with a link, or with what moves an island's bytes past links.
#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/coordinator/steps/commit_round.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

void CommitRound::on_round_broken(const wire::RoundBroken& broken) {
  if (broken.fabric()) return on_fabric_failed(broken);
  const GroupId group{broken.group()};
  if (!board_.active() || from_wire(broken.phase()) != phase() || !board_.has(group) ||
      !in_.members.is_current(from_wire(broken.beyond())))
    return;
  if (!board_.is_member(group, from_wire(broken.seat())) ||
      !board_.is_member(group, from_wire(broken.beyond())) ||
      broken.seat().peer() == broken.beyond().peer()) {
    SWARMLINE_MARK("commit_round.broken_elsewhere");
    return;
  }
  if (!broken.own_end())
    links_.broke(from_wire(broken.seat()).peer, from_wire(broken.beyond()).peer, in_.alarms.now());
  if (board_.attempt(group).value != broken.attempt()) return;
  // It may be its end that is gone: that is heard soon.
  in_.alarms.after(retry_pause(board_.attempt(group)),
                   [this, broken, step = board_.step()] { retry_over_broken_link(broken, step); });
}

// Its island sums over links in the next attempt.
void CommitRound::on_fabric_failed(const wire::RoundBroken& broken) {
  const GroupId group{broken.group()};
  const Seat reporter = from_wire(broken.seat());
  if (!board_.active() || from_wire(broken.phase()) != phase() || !board_.has(group) ||
      !board_.is_member(group, reporter) || board_.attempt(group).value != broken.attempt())
    return;
  SWARMLINE_MARK("commit_round.fabric_failed");
  seals_.fabrics().on_failed(group);
  in_.events.event("round_broken",
                   fmt::format("the island of {} could not sum past links; it is tried over links",
                               in_.events.who(reporter)));
  if (board_.held(group)) return fetch_missing(group);
  average_again(group);
}

// Their other links may be older, and stand: one that takes no new one looks like its mate.
void CommitRound::ask_whose_end_it_is(const Seat& one, const Seat& other) {
  for (const Seat& end : {one, other})
    in_.probe.unless_reached(end, [this, end, step = board_.step()] {
      if (!board_.active() || board_.step() != step) return;
      SWARMLINE_MARK("commit_round.not_reached_from_here");
      links_.broke(kCoordinatorEnd, end.peer, in_.alarms.now());
    });
}

void CommitRound::retry_over_broken_link(const wire::RoundBroken& broken, std::uint64_t step) {
  const Seat reporter = from_wire(broken.seat()), beyond = from_wire(broken.beyond());
  const GroupId group{broken.group()};
  if (!board_.active() || board_.step() != step ||
      board_.attempt(group).value != broken.attempt() || !in_.members.is_current(reporter) ||
      !in_.members.is_current(beyond))
    return;
  SWARMLINE_MARK("commit_round.broken_link");
  in_.events.event("round_broken",
                   fmt::format("the link between {} and {} broke while they averaged",
                               in_.events.who(reporter), in_.events.who(beyond)));
  if (board_.held(group)) return fetch_missing(group);
  // Two that can't reach each other can't reduce together: one is released.
  const Instant now = in_.alarms.now();
  const bool again_and_again =
      links_.ended_an_attempt(reporter.peer, beyond.peer) >= knobs().broken_links_max;
  if (!again_and_again) ask_whose_end_it_is(reporter, beyond);
  if (again_and_again && broken.own_end()) {
    SWARMLINE_MARK("commit_round.reaches_nobody");
    if (bears_with(reporter)) return average_again(group);
    return in_.rulings.lose(reporter, "it can open no connection to anybody it averages with");
  }
  if (again_and_again && broken.nobody_there()) {
    SWARMLINE_MARK("commit_round.nobody_there");
    return in_.rulings.lose(beyond, "nobody listens at its address any more");
  }
  if (again_and_again && links_.others_break_too(reporter.peer, beyond.peer, now)) {
    SWARMLINE_MARK("commit_round.many_links_broken");
  } else if (again_and_again) {
    SWARMLINE_MARK("commit_round.link_given_up");
    const bool is_beyond = links_.at_fault(reporter.peer, beyond.peer, now) != reporter.peer;
    const Seat& at_fault = is_beyond ? beyond : reporter;
    const Seat& other = is_beyond ? reporter : beyond;
    // Nobody is waited for while one can be spared that holds nothing.
    const bool spares = in_.members.serves_early(other) && is_last_holder(at_fault);
    const Seat& lost = spares ? other : at_fault;
    if (bears_with(lost)) return average_again(group);
    return in_.rulings.lose(lost, fmt::format("lost the link between {} and {} again and again",
                                              to_string(reporter), to_string(beyond)));
  }
  average_again(group);
}

void CommitRound::average_again(GroupId group) {
  board_.give_up(group, board_.attempt(group));
  wake();
}

bool CommitRound::is_last_holder(const Seat& seat) const {
  return in_.members.holds_state(seat) && in_.members.count_ready(seat.stage) == 1 &&
         in_.shadows.ready_of(seat.stage).empty();
}

// It lives, and alone holds its stage's state: its links may be made before going back is cheaper.
bool CommitRound::bears_with(const Seat& seat) {
  if (!is_last_holder(seat)) return false;
  const Instant now = in_.alarms.now();
  const auto [entry, begins] = last_peers_.try_emplace(seat.stage);
  Wait& wait = entry->second;
  if (begins) wait = {.since = now, .patience = patience_()};
  if (begins && wait.patience > Duration{}) {
    SWARMLINE_MARK("commit_round.bears_with_the_last_one");
    in_.events.event("waiting",
                     fmt::format("links to {} are not made, and it is the last of its stage; the "
                                 "run waits {:.3g} s at most, then it goes back without it",
                                 in_.events.who(seat), to_seconds(wait.patience)),
                     LogLevel::kWarn);
  }
  if (now - wait.since < wait.patience) return true;
  SWARMLINE_MARK("commit_round.bears_no_longer");
  ++given_up_;
  last_peers_.erase(entry);
  return false;
}

}  // namespace swarmline
