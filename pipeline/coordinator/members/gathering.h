// The start of a run or an era: who is still to come, and whether enough have come.
//   What:      a run's first start waits for all the peers that its config wants; one that goes
//              back waits a while for those who lived, and then goes on with a peer at each stage.
//              Where a stage has nobody and another has more than is wanted, one of them goes
//              there.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    a stage that nobody joins for [net] peers_wait_seconds ends a run that has trained;
//              but it waits for [net] outlast_seconds for those of the newest kAskedMax lost peers
//              that did not say that they end, and whose addresses don't refuse.
//   Bounds:    knobs().gather_time for those who lived, and for peers beyond those wanted that
//              still build; [net] build_seconds without progress for anybody who builds.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "pipeline/coordinator/members/link_probe.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/run/deadline.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/rulings.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_shape.h"

namespace swarmline {

class Gathering final : public RunObserver {
 public:
  static constexpr std::size_t kAskedMax = 64;
  static constexpr std::size_t kEndedMax = 4096;  // newest peers of which that is remembered

  Gathering(const RunShape& shape, Alarms& alarms, EventLog& events, const Membership& members,
            LinkProbe& probe, Rulings& rulings)
      : shape_(shape),
        alarms_(alarms),
        events_(events),
        members_(members),
        probe_(probe),
        rulings_(rulings),
        gather_timer_(alarms),
        peers_wait_(alarms),
        builders_wait_(alarms) {}

  bool has_trained() const { return has_trained_; }  // peers of this run are about
  void set_trained() { has_trained_ = true; }
  // Those lived when the era began.
  void expect(const std::set<PeerId>& peers) {
    expected_ = peers;
    gathers_ = true;
  }
  // Begins an era of a run that has trained; `furthest`: the version that it had reached.
  void begin(const std::string& why, std::uint64_t furthest);
  void ready(PeerId peer);  // it has built its stage
  void failed(const Seat& seat, const std::string& why);
  void stop();                                // training goes on
  std::uint32_t wanted(StageId stage) const;  // peers, for a start

  void wake() { dirty_ = true; }
  bool is_due() const { return dirty_; }
  std::size_t ended_peers() const { return ended_.size(); }
  // Enough have come. Else those are sent to other stages who are needed there.
  bool may_start(bool first_era);

  void on_seat_lost(const SeatLoss& lost) override;

 private:
  void wait_for_those_who_lived();
  void arm_peers_wait();
  void on_nobody_joined();
  bool somebody_may_live();
  void ask_the_newest();
  void say_that_it_waits(StageId stage);
  bool waits_for_builders(bool formed);
  void fill_stages();
  std::size_t spare_for(StageId stage, const std::vector<Seat>& spare) const;

  const RunShape& shape_;
  Alarms& alarms_;
  EventLog& events_;
  const Membership& members_;
  LinkProbe& probe_;
  Rulings& rulings_;
  bool has_trained_ = false;
  bool gathers_ = true;
  std::set<PeerId> expected_;  // and are not back
  bool gathered_ = false;      // whoever comes back has had the time
  std::string why_;            // it waits, for people
  std::uint64_t furthest_ = 0;
  Instant began_{};
  bool asked_ = false;                   // those that were, whether they are gone
  std::set<PeerId> ended_;               // that said so: nobody waits for them
  std::set<PeerId> may_live_;            // of those, who have not refused
  std::optional<Instant> enough_since_;  // peers for a start
  Deadline gather_timer_, peers_wait_, builders_wait_;
  bool dirty_ = false;
};

}  // namespace swarmline
