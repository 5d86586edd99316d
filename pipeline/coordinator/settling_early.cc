// Early seats: who fetches its stage's state serves the open step as soon as it has the parameters,
// which come first. It adds, and averages, as any other; it can't step, holds nothing that the run
// could go on with, and nobody waits for the rest: with the commit it follows again, unless it has
// all by then.
#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/coordinator/settling.h"

namespace swarmline {

// With a delay the version before is computed on, too, and does not come from mates. A sealed step
// needs nobody new.
bool Settling::may_serve_early(const Seat& seat, std::uint64_t version) const {
  const CoordinatorParts& p = parts_;
  return p.life.is<life::Training>() && p.members.follows(seat) && !p.states.waits(seat) &&
         p.shape.config.pipeline.delay == 0 && version == p.sequence.committed() &&
         !p.sequence.finished() && !p.round.is_active() && p.members.count_ready(seat.stage) > 0;
}

void Settling::take_early_seat(const Seat& seat, std::uint64_t version) {
  CoordinatorParts& p = parts_;
  if (!may_serve_early(seat, version)) return SWARMLINE_MARK("settling.too_late_for_an_early_seat");
  SWARMLINE_MARK("settling.early_seat");
  p.members.become(seat.peer, MemberState::kEarly);
  p.detector.works_from(seat, p.alarms.now());
  p.events.of_peer(
      seat, "early_seat",
      fmt::format(" serves with the parameters of version {}; the rest follows", version));
  tell_views();
  p.phases.greet(seat);
  p.leases.wake();
  progress_ = true;
}

// It has its phases and its part of them: nothing changes for it.
void Settling::has_the_rest(const Seat& seat, std::uint64_t version) {
  SWARMLINE_MARK("settling.early_seat_has_the_rest");
  holds_its_state(seat, version);
}

// They have heard it with the commit.
void Settling::end_early_seats() {
  CoordinatorParts& p = parts_;
  const std::vector<Seat> early = p.members.early();
  for (const Seat& seat : early) {
    SWARMLINE_MARK("settling.early_seat_over");
    p.members.become(seat.peer, MemberState::kFollowing);
    p.detector.begins_to_fetch(seat.peer, p.alarms.now());
    if (p.members.at(seat.peer).draining) p.rulings.lose(seat, "drained", Departure::kLeft);
  }
  if (!early.empty()) tell_views();
}

// Nobody is left who holds the rest; one that has fetched all of it goes on with the stage.
void Settling::end_early_seats_of(StageId stage) {
  CoordinatorParts& p = parts_;
  const std::uint64_t version = p.sequence.committed();
  for (const Seat& seat : p.members.early()) {
    if (seat.stage != stage) continue;
    const auto heir = p.audit.heir(stage, version);
    if (heir && heir->seat == seat) {
      SWARMLINE_MARK("settling.early_seat_inherits");
      p.audit.take_follower(seat);
      seat_follower(*heir, version);
      continue;
    }
    SWARMLINE_MARK("settling.early_seat_without_a_holder");
    end_seat({.seat = seat,
              .why = "it has the parameters alone, and nobody is left who holds the rest",
              .how = Departure::kMoves});
  }
}

}  // namespace swarmline
