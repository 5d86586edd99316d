// What peers say of microbatches: contributions, claims, failures to compute.
//   What:      enters it in the ledger and answers. A microbatch that fails on as many peers as may
//              try it is poison: the run ends with its name and the errors. Who fails at what
//              others compute is let go.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    what does not fit (a seat that is over, a phase that is retired, an index out of
//              range) is refused, and the sender told so.
//   Bounds:    kFailuresKept sentences of kFailureBytesMax a microbatch.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/line_rate.h"
#include "engine/net/rpc.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/steps/leases.h"
#include "pipeline/ledger/ledger.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class ReportIntake final : public RunObserver {
 public:
  static constexpr std::size_t kFailuresKept = 8;
  static constexpr std::size_t kFailedMicrobatchesMax = 1024;  // of which sentences are kept
  static constexpr std::size_t kFailureBytesMax = 1024;
  static constexpr std::uint32_t kWrongFailuresMax = 3;  // in a step, at what others compute
  static constexpr std::uint32_t kStallsMax = 128;       // of a peer, told on in kStallPeriod
  static constexpr Duration kStallPeriod = std::chrono::seconds(1);

  ReportIntake(const RunShape& shape, Ledger& ledger, Leases& leases, const Membership& members,
               Outbox& outbox, Rulings& rulings)
      : shape_(shape),
        ledger_(ledger),
        leases_(leases),
        members_(members),
        outbox_(outbox),
        rulings_(rulings) {}

  void on_report(const wire::Report& report);
  // `seat`: of the session that asks.
  void on_claim(const Seat& seat, const Frame& frame, const RpcChannel::Respond& respond);
  void on_release_claim(const wire::ReleaseClaim& release);
  void on_compute_failed(const wire::ComputeFailed& failed);
  // A peer whose gradient nobody acknowledges says so: the stalled peer's senders are told.
  // Bounds: more than kStallsMax are one evidence.
  void on_stall(const wire::StallReport& stall, Instant now);

  // Cells have changed owner since the last time this was asked.
  bool take_progress() { return std::exchange(progress_, false); }

  void on_seat_lost(const SeatLoss& loss) override;
  void on_rollback() override { failures_.clear(); }
  void on_retired(const Phase& phase) override;

 private:
  struct Failures {
    std::vector<std::string> whats;
    std::set<Seat> seats;
  };
  struct Stalls {
    Instant since;
    std::uint32_t told = 0;
  };
  // A peer's word is not enough to stop a run of many.
  std::size_t failures_to_stop_at(StageId stage) const;
  void note_computed(const MicrobatchId& microbatch, const Seat& by);

  const RunShape& shape_;
  Ledger& ledger_;
  Leases& leases_;
  const Membership& members_;
  Outbox& outbox_;
  Rulings& rulings_;
  std::map<MicrobatchId, Failures> failures_;                         // of open phases
  std::map<std::pair<Phase, PeerId>, std::uint32_t> wrong_failures_;  // of open phases
  std::map<PeerId, Stalls> stalls_;
  LineRate stall_lines_;
  bool progress_ = false;
};

}  // namespace swarmline
