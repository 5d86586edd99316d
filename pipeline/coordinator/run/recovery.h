// A coordinator that is begun again on its journal: hears from every seat that the journal knows
// what it holds, and says what is to go on.
//   What:      takes peers back to their seats; over when every seat has come (and, where it was
//              cut off, for knobs().collect_calm nobody has come again), when each stage has
//              somebody and nobody came for as long as a peer may be silent, or when [net]
//              collect_seconds have passed and none has come for the first time within
//              knobs().redial_time; longer for those who alone hold a stage's state, as
//              run/bargain.h says, and, for [net] outlast_seconds, until anybody at all is heard:
//              with nobody there is nobody to go back with. What peers say meanwhile waits, in
//              order.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    who holds what does not fit the journal is not taken back.
//   Bounds:    kHeldMax messages wait, of Limits::messages_held_bytes_max; one more ends its
//              connection, and is said again. Who still comes is waited for until [net]
//              peers_wait_seconds have passed since the first one came.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "engine/store/journal.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/link_probe.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/deadline.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/run_journal.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

// What the journal and those who came back say of the run.
struct CollectedHoldings {
  Era era;
  std::uint64_t committed = 0;
  std::uint64_t evaluated = 0;
  std::optional<std::uint64_t> updates;     // when the era began; empty: the journal does not say
  std::optional<CommitRecord> last_commit;  // of this era
  std::map<Seat, wire::Holdings> holdings;
  std::set<Seat> awaited;
  std::vector<std::function<void()>> held;
  std::uint64_t held_bytes = 0;

  bool names_step(std::uint64_t step) const;  // somebody holds something of it
};

class Recovery final : public RunObserver {
 public:
  static constexpr std::size_t kHeldMax = 1 << 16;
  struct Needs {  // services, and parts below it
    const RunShape& shape;
    Alarms& alarms;
    FailureDetector& detector;
    SessionTable& sessions;
    Membership& members;
    LinkProbe& probe;
    Outbox& outbox;
    EventLog& events;
  };
  // `patience`: what waiting is worth where nobody else holds a stage's state.
  Recovery(const Needs& needs, std::function<Duration()> patience)
      : in_(needs),
        patience_(std::move(patience)),
        deadline_(needs.alarms),
        quiet_(needs.alarms),
        calm_due_(needs.alarms) {}

  // `heard_nobody`: of those that it had; they are waited for longer, until anybody is heard.
  void begin(const JournaledRun& run, Term term, bool heard_nobody);
  bool is_active() const { return collected_.has_value(); }
  std::uint64_t committed() const { return collected_ ? collected_->committed : 0; }

  void heard_somebody();
  bool resumes(const wire::Hello& hello, const std::string& run_id) const;
  void resume(const SessionPtr& session, const wire::Hello& hello);
  // Its connection has ended: it may come again. False: it was not back.
  bool is_awaited_again(const Session& session);
  // Nothing was heard from it: it may come again over another connection. False: it was not back.
  bool hangs_up_on(const Seat& silent);
  // What a peer says waits; false: nothing is being collected.
  bool hold(const SessionPtr& session, std::uint64_t bytes, std::function<void()> handle);

  void on_seat_lost(const SeatLoss& lost) override;

  // ---- The end ----
  bool is_due() const { return collected_ && (over_ || (collected_->awaited.empty() && calm_)); }
  // Those that did not come; asked again once they are lost, there are none.
  std::set<Seat> take_missing();
  CollectedHoldings take();

  std::uint32_t given_up() const { return given_up_; }  // waits, ever
  std::size_t held_messages() const { return collected_ ? collected_->held.size() : 0; }
  void check_invariants() const;

 private:
  void arm_deadline();
  void on_deadline();
  bool they_still_come() const;
  void arm_quiet();
  void arm_calm();
  std::vector<StageId> stages_without_anybody() const;
  void wait_for_the_last_ones(const std::vector<StageId>& stages);
  void wait_for_anybody();
  void give_up_waiting();
  bool hears_nobody() const;

  Needs in_;
  std::optional<CollectedHoldings> collected_;
  std::function<Duration()> patience_;
  Instant began_{}, first_came_{}, last_came_{};
  std::set<Seat> came_;  // since it began
  bool heard_nobody_ = false;
  bool waits_longer_ = false;  // for the last ones of a stage
  bool over_ = false;
  bool cut_off_ = false;  // it was, before this began
  bool calm_ = true;      // nobody comes again who came when it was in reach once more
  std::uint32_t given_up_ = 0;
  Deadline deadline_;  // whoever has not come by then is lost
  Deadline quiet_;     // nobody has come or gone for a while
  Deadline calm_due_;
};

}  // namespace swarmline
