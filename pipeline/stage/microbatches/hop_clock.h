// How long one leg of a hop takes at each peer of the next stage, and from when on it is late: its
// microbatch may then get an early second try at another peer, long before the hop timeout.
//
// A leg is the work between two words of one peer: sent -> forward done, and gradient arrived
// there -> gradient here. Per peer and kind of leg a smoothed time and its deviation as for round
// trips (RFC 6298, section 2), but the deviation falls slower than it rises: the first legs of a
// step wait until the receiver has stepped, and a step's calm ones must not make the next such wait
// look late. Answers of attempts that were given up count too, so that a peer that stays slow is
// soon known as what it is.
// A leg is given up after the timeout, or after kUsual of what all peers usually take where that is
// longer: over slow links legs wait for each other, and whatever is sent again makes them longer.
//   Knobs:  hop_late_min: nothing is late before; what disturbs a machine for less costs less than
//           a second try. hop_owed_max: attempts of one sender that were given up and that a peer
//           still owes answers to, before none is early any more; bounds the work that early tries
//           add to a stage whose queues grow, and how often a peer is passed by before what it
//           answers is known.
//   Thread: control thread; pure: the time is passed in.
//   Bounds: kTimeoutsMax timeouts until a leg is given up; one leg per attempt on its way, of open
//           phases; two estimates, a version, and one note per open phase of each candidate.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "base/ids.h"
#include "base/units.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

class HopClock {
 public:
  enum class Leg : std::uint8_t { kForward, kBackward };

  static constexpr std::uint32_t kSamplesMin = 8;  // of a peer and leg, before anything is late
  static constexpr double kMargin = 2;             // times (smoothed + kDeviations deviations)
  static constexpr double kDeviations = 4;
  static constexpr double kUsual = 4;         // times the smoothed time of all peers
  static constexpr double kTimeoutsMax = 10;  // of the config's

  // `timeout`: no leg is waited for longer where legs are shorter, and each so long of which too
  // little is known.
  explicit HopClock(Duration timeout) : timeout_(timeout) {}

  void begin(const AttemptId& id, PeerId peer, Leg leg, Instant now);
  // The answer to that leg, late or not. Of an unknown attempt it is ignored.
  void end(const AttemptId& id, PeerId peer, Instant now);
  // The attempt was given up; its answer still counts.
  void supersede(const AttemptId& id);
  // Nothing is to be learned from it any more.
  void drop(const AttemptId& id);
  // Nobody answers for that phase any more: what is owed took at least until now.
  void on_over(const Phase& phase, Instant now);
  // What that peer owes may have been lost on its way.
  void on_link_lost(PeerId peer);
  void forget(PeerId peer);  // no candidate any more

  // How long the leg that the attempt is on may take before it is late; the timeout where it is on
  // none.
  Duration patience(const AttemptId& id) const;
  // The leg has run for so long, as a timer says that fired so much after it was due.
  bool is_late(const AttemptId& id, Duration waited, Duration overslept) const {
    return waited >= patience(id) && overslept < knobs().overslept_min;
  }
  // The peer has said that it has stepped to that version.
  void on_stepped(PeerId peer, Version version);
  // The peer of that leg has answered something of its phase, or said that it has the version that
  // is computed on, so that it does not just wait for a commit; and it owes answers to fewer than
  // hop_owed_max attempts that were given up.
  bool may_pass(const AttemptId& id, Version version) const;
  // ... before it is given up.
  Duration timeout(const AttemptId& id) const;

 private:
  struct Estimate {
    double smoothed = 0;   // seconds
    double deviation = 0;  // seconds
    std::uint32_t samples = 0;
    void add(double seconds);
  };
  struct Running {
    PeerId peer;
    Leg leg = Leg::kForward;
    Instant began{};
    bool superseded = false;
  };
  void learn(const Running& leg, Instant now);
  Duration timeout(Leg leg) const;

  Duration timeout_;
  std::map<AttemptId, Running> running_;  // and what is owed
  std::map<PeerId, std::array<Estimate, 2>> estimates_;
  std::array<Estimate, 2> all_;  // of what was answered
  std::set<std::pair<Phase, PeerId>> answered_;
  std::map<PeerId, Version> stepped_;
};

}  // namespace swarmline
