// Who is silent, whose device is stuck, and whether it is the coordinator itself that was stopped.
//   What:      judges what heartbeats say and when they came. Slowness is nobody's failure: it is
//              left to the wiring.
//   Units:     instants of the coordinator's clock, passed in.
//   Thread:    control thread. Pure.
//   Bounds:    one entry a peer that has a seat, and kStuckPeersMax counts of those that lost one.
//   Source:    deviations of gaps as TCP judges round trips (RFC 6298).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "engine/config/run_config.h"
#include "pipeline/coordinator/members/heartbeat_pace.h"

namespace swarmline {

class FailureDetector {
 public:
  // A peer may be silent for so many heartbeats, where the config does not say for how long.
  static constexpr double kSilentPeriods = 4.4;
  // Of so many peers it counts the seats that they lost so; of the newest.
  static constexpr std::size_t kStuckPeersMax = 1024;

  FailureDetector(const NetSection& net, double hop_timeout_seconds);

  // ---- What is heard ----
  void watch(const Seat& seat, Instant now);  // it has this seat now, and was heard
  void forget(PeerId peer);                   // the seat is over
  void heard(const Seat& seat, Instant now);
  void heartbeat(const Seat& seat, std::uint64_t jobs_done, std::uint64_t jobs_waiting,
                 Instant now);
  // With a heartbeat: its next one comes within `period`; zero: the usual one.
  void promises(const Seat& seat, Duration period);
  // Bytes of states and gradients that it was sent, ever: more than before is progress.
  void moved(const Seat& seat, std::uint64_t bytes, Instant now);
  void begins_to_fetch(PeerId peer, Instant now);
  void works_from(const Seat& seat, Instant now);  // its device has nothing older to end
  void contributed(PeerId peer) { stuck_seats_.erase(peer); }

  // ---- What follows ----
  // Silent for longer than they may be: the config's time, or what is usual for each (at least
  // silence_allowed(), at most knobs().silence_max; by what its period is longer, longer).
  std::vector<Seat> silent(Instant now) const;
  Duration silence_allowed() const;  // of one whose heartbeats come evenly and as often as usual
  Duration silence(const Seat& seat, Instant now) const;
  // Everybody is about as silent as the one of these that was heard last, however long others of
  // them have been silent (members/vigil.h): it is not they that are gone.
  bool hears_nobody(const std::vector<Seat>& silent, Instant now) const;
  // It has said something under that seat, and so knows of it.
  bool has_beaten(const Seat& seat) const;
  // Since anybody at all has been heard; if nobody was, since the clock began.
  Duration unheard(Instant now) const { return now - heard_anybody_; }
  // Nobody at all has been heard for longer than silence_allowed().
  bool is_deaf(Instant now) const;
  // Nobody at all was heard for longer than silence_allowed(), until now or until a moment ago, in
  // which whoever gave up on this end meanwhile dials it anew. Thinned heartbeats are not late by
  // then.
  bool was_deaf(Instant now) const;
  // Their heartbeats have said for stuck_time() that there is work and none of it ends.
  std::vector<Seat> stuck() const;
  Duration stuck_time() const;
  // When it got on last with what it fetches, or else got its seat; of one without a seat: never.
  Instant moved_at(PeerId peer) const;
  // The same, or when its device was last known to work, unless that is stuck.
  Instant got_on_at(PeerId peer) const;
  // Heartbeats say what was: nobody stands still for what a heartbeat has not told yet.
  Duration told_within() const;
  // What its next heartbeat but one is to come within, where that is another than it promised.
  std::optional<Duration> asks(const Seat& seat, bool often) const;
  // One more seat that the peer loses so; how many in a row, without a contribution between.
  std::uint32_t count_stuck(PeerId peer);
  std::size_t watched() const { return pulses_.size(); }
  std::size_t stuck_peers() const { return stuck_seats_.size(); }

  // ---- Its own looks ----
  Instant next_look(Instant now);  // when to look again
  // What this end has decided can't be said now: nobody is late with an answer to it.
  // Nor with its first heartbeat whoever has not heard yet that it has a seat.
  void is_held_up(Instant now);
  bool overslept(Instant now) const;    // late by more than a heartbeat: it was not they
  bool was_stopped(Instant now) const;  // either: whoever is late, it is not them
  Duration lateness(Instant now) const { return now - expected_look_; }
  void begin(Instant now) { expected_look_ = now; }
  void restart_deadlines(Instant now);

  void check_invariants() const;

 private:
  struct Pulse {
    Seat seat;
    Instant last_heard{};
    Instant last_beat{};
    bool beats = false;   // under this seat: it has heard of it
    Duration gap_mean{};  // between its heartbeats, as they arrive
    Duration gap_deviation{};
    Duration period{};   // that it promised last
    Instant progress{};  // when its device last ended a job, or had none
    std::uint64_t jobs_done = 0;
    bool has_work = true;  // as its last heartbeat said
    Instant worked{};      // when its device last had a job, or had ended one since
    Instant moved{};
    std::uint64_t moved_bytes = 0;
    bool works = false;
  };
  Pulse* find(const Seat& seat);
  void heard_anybody(Instant now);
  Duration thinned(const Pulse& pulse) const { return pulse.period - pace_.usual(); }
  Duration silence_allowed(const Pulse& pulse) const;
  Duration silence_allowed_at_first() const;
  bool is_stuck(const Pulse& pulse) const;
  Duration stuck_time(Duration period) const;

  HeartbeatPace pace_;
  Duration configured_silence_;
  Duration hop_timeout_;
  std::map<PeerId, Pulse> pulses_;
  std::map<PeerId, std::uint32_t> stuck_seats_;
  Instant heard_anybody_{};
  Instant deaf_until_{};
  Instant expected_look_{};
  Instant held_up_until_{};
};

}  // namespace swarmline
