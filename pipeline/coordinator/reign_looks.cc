// What a coordinator looks at as time passes: who is silent, stuck, or in nobody's way any more.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "base/marks.h"
#include "pipeline/coordinator/reign.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

void Reign::look() {
  const Instant now = parts_.alarms.now();
  if (parts_.detector.overslept(now)) {
    log(LogLevel::kWarn, "the coordinator was stopped for {:.1f} s; all deadlines start over",
        to_seconds(parts_.detector.lateness(now)));
    parts_.alarms.stood_still();
    parts_.detector.restart_deadlines(now);
    parts_.shadows.restart_deadlines(now);
    parts_.takeovers.restart_deadlines();
    parts_.vigil.restart_deadlines();
    parts_.kept_heirs.restart_deadlines();
  }
  if (parts_.writer.is_late(now)) {
    SWARMLINE_MARK("reign.held_up_by_journal");
    parts_.alarms.stood_still();
    parts_.detector.is_held_up(now);
    parts_.shadows.restart_deadlines(now);
    parts_.takeovers.restart_deadlines();
  }
  parts_.alarms.at(parts_.detector.next_look(now), [this] {
    if (!parts_.life.is_over()) look();
  });
  const std::vector<Seat> silent = parts_.detector.silent(now);
  const auto seconds = [&](const Seat& seat) {
    return to_seconds(parts_.detector.silence(seat, now));
  };
  if (settling_.may_begin_again() && parts_.detector.hears_nobody(silent, now))
    return parts_.rulings.begin_again(fmt::format("nothing was heard from anybody for {:.3g} s",
                                                  seconds(std::ranges::min(silent, {}, seconds))),
                                      true);
  judge(silent);
  for (const Seat& seat : parts_.detector.stuck()) {
    SWARMLINE_MARK("reign.stuck_device");
    const std::uint32_t times = parts_.detector.count_stuck(seat.peer);
    std::string why = fmt::format("it answers, but its device has ended nothing for {:.3g} s",
                                  to_seconds(parts_.detector.stuck_time()));
    const bool for_good = times >= knobs().stuck_seats_max;
    if (for_good) why += fmt::format(", {} times without a contribution between", times);
    parts_.rulings.lose(seat, why, for_good ? Departure::kRefused : Departure::kLost);
  }
  let_go_of_those_that_stand_still(now);
  close_nobodys_links(now);
  parts_.states.look();
  parts_.standbys.demote_late([this](StageId stage) { return parts_.takeovers.is_emptied(stage); });
  parts_.takeovers.check_deadlines();
  parts_.kept_heirs.wake();
}

// Where training is under way, what the last peers of a stage hold is worth waiting for.
void Reign::judge(const std::vector<Seat>& silent) {
  if (parts_.life.is_running()) return parts_.vigil.judge(silent);
  const Instant now = parts_.alarms.now();
  // It can't begin again once more; a newcomer is not let go for it, nor before the run gives up on
  // hearing from anybody.
  const bool recovers = parts_.life.is<life::Recovering>();
  const bool hears_nobody = recovers && parts_.detector.hears_nobody(silent, now);
  const Duration allowed = recovers && parts_.detector.was_deaf(now)
                               ? from_seconds(options_.config.net.outlast_seconds)
                               : knobs().return_time;
  for (const Seat& seat : silent) {
    const Duration silence = parts_.detector.silence(seat, now);
    if (parts_.recovery.hangs_up_on(seat)) continue;
    if (hears_nobody && silence < allowed) {
      SWARMLINE_MARK("reign.recovers_and_hears_nobody");
      continue;
    }
    parts_.rulings.lose(seat,
                        fmt::format("nothing was heard from it for {:.3g} s", to_seconds(silence)));
  }
}

// Nobody waits for ever for a stage that is not built, or for a state that does not come.
void Reign::let_go_of_those_that_stand_still(Instant now) {
  const double limit = options_.config.net.build_seconds;
  for (const auto& [peer, member] : parts_.members.members()) {
    const bool builds = member.state == MemberState::kBuilding && !parts_.states.waits(member.seat);
    if (!builds && member.state != MemberState::kFollowing) continue;
    if (now - parts_.detector.moved_at(peer) <= from_seconds(limit)) continue;
    SWARMLINE_MARK("reign.stands_still");
    const bool for_good = parts_.detector.count_stuck(peer) >= knobs().stuck_seats_max;
    parts_.rulings.lose(member.seat,
                        fmt::format("it has got no further with its stage for {:.0f} s", limit),
                        for_good ? Departure::kRefused : Departure::kLost);
  }
}

// Who has no seat and asks for none says nothing that anybody waits for.
void Reign::close_nobodys_links(Instant now) {
  for (const SessionPtr& session : parts_.sessions.idle_without_seat(now)) {
    if (parts_.arrivals.waits(session)) continue;
    SWARMLINE_MARK("reign.nobodys_link");
    parts_.outbox.close(session);
  }
}

}  // namespace swarmline
