// Who has the run's data, for those that fetch it: they are told of holders, and of the hashes that
// pieces must have. A stage that only fetches needs a holder somewhere in the run.
//   What:      holders are members that serve, whose data matched and who give it. Who fetches, at
//              the stage that reads, is told of kToldMax of them, other ones each, as they change.
//              Where nobody has the data any more the run's user is told once, and no start is
//              made.
//   Ownership: what it is made with outlives it; the manifest is shared, null: nobody fetches.
//   Thread:    control thread.
//   Errors:    who asks for hashes that there are not: kCorrupt.
//   Bounds:    a look at each member where seats change and somebody fetches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/data/data_manifest.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class DataHolders final : public RunObserver {
 public:
  static constexpr std::size_t kToldMax = 16;

  DataHolders(std::shared_ptr<const DataManifest> manifest, const Membership& members,
              Outbox& outbox, EventLog& events);

  // Seats have changed: those that fetch are told, or the user that there is nobody to fetch from.
  void tell();
  // Nobody reads data that nobody has.
  bool may_start() const;
  // Its stage is there, and it begins to fetch, or goes on: it is told of holders, too.
  Result<void> on_want_hashes(const Seat& from, const wire::WantHashes& want);

  void on_seat_lost(const SeatLoss& lost) override { told_.erase(lost.seat); }
  void on_rollback() override { told_.clear(); }

 private:
  std::vector<Seat> fetching() const;
  std::vector<Seat> holders() const;
  void say(bool anybody, const std::vector<Seat>& fetching);

  std::shared_ptr<const DataManifest> manifest_;
  const Membership& members_;
  Outbox& outbox_;
  EventLog& events_;
  std::map<Seat, std::set<Seat>> told_;
  bool said_ = false;  // that nobody has it
};

}  // namespace swarmline
