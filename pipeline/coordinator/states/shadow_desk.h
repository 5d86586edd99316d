// The shadows: who follows which stage in host memory, and what each holds. Pure: instants are
// passed in.
//   Names:    a shadow is named by a seat: its host's peer and incarnation, with the stage that it
//             follows.
//   States:   it fetches a state (it hears of commits once that is being frozen), and is ready once
//             it has held a version with the digest that the stage's members report. Ready ones
//             keep each step's result and may take the stage over.
//   Late:     a ready one that has not answered for kLateDownloads of the times in which it fetched
//             its first state, at least knobs().shadow_late_min. One that has not fetched a state
//             in shadow_fetch_time is given up; a host that let one down is asked for no other in
//             shadow_rest_time.
//   Thread:   control thread. Bounds: as the planner says (PlanOptions::shadows_per_peer_max a
//             peer).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "pipeline/protocol/knobs.h"

namespace swarmline {

class ShadowDesk {
 public:
  static constexpr int kLateDownloads = 2;

  struct Shadow {
    StageId host_stage;  // that its host serves
    bool follows = false;
    bool ready = false;
    std::uint64_t version = 0;  // that it says it holds
    std::uint64_t digest = 0;
    std::uint64_t has = 0;          // the version that what it has fetched leads to
    Instant since{};                // added, or began to follow
    Duration fetch_time{};          // of its first state
    std::optional<Instant> asked;   // for a result, and has not said it has it
    std::optional<Instant> behind;  // since a commit that it has not said it has applied
  };

  bool empty() const { return shadows_.empty(); }
  bool has(const Seat& shadow) const { return shadows_.contains(shadow); }
  const std::map<Seat, Shadow>& all() const { return shadows_; }
  std::vector<Seat> of_stage(StageId stage) const;
  std::vector<Seat> ready_of(StageId stage) const;
  std::vector<Seat> hosted_by(PeerId host) const;
  bool rests(PeerId host, Instant now) const;

  void add(const Seat& shadow, StageId host_stage, Instant now);
  void remove(const Seat& shadow) { shadows_.erase(shadow); }
  void rest(PeerId host, Instant now);
  void forget(PeerId host) { rests_until_.erase(host); }  // it is long gone
  std::size_t resting() const { return rests_until_.size(); }
  void begin(const Seat& shadow, Instant now);    // it hears of commits from now on
  void restart(const Seat& shadow, Instant now);  // it fetches another state
  void said(const Seat& shadow, std::uint64_t version, std::uint64_t digest, Instant now);
  void confirm(const Seat& shadow, Instant now);  // a member has the same bits
  void asked(const Seat& shadow, Instant now);
  void answered(const Seat& shadow);
  // `version` is committed; it has all that leads there.
  void committed(const Seat& shadow, std::uint64_t version, bool has_it, Instant now);
  std::vector<Seat> late(Instant now) const;
  void restart_deadlines(Instant now);

  // Who shall take `stage` over: a ready shadow that has all of `version`, and whose own stage
  // keeps somebody (`served` says how many serve it, or are about to with a copy of their own), or
  // has such a shadow of its own. Those that hold the
  // version now come first, then those of the stages with the most peers.
  std::optional<Seat> heir(StageId stage, std::uint64_t version,
                           const std::function<std::size_t(StageId)>& served) const;

 private:
  std::optional<Seat> heir_besides(StageId stage, std::uint64_t version,
                                   const std::function<std::size_t(StageId)>& served,
                                   std::set<PeerId>& taken) const;

  std::map<Seat, Shadow> shadows_;
  std::map<PeerId, Instant> rests_until_;
};

}  // namespace swarmline
