// How many microbatches a source takes, and their data.
//   What:      asks the coordinator for leases up to a window, one more for each microbatch that
//              ended. Everybody but stage 0 has no source and asks for none.
//   Units:     microbatches, counted since the seat was taken.
//   Ownership: owns the source and the counts.
//   Thread:    control thread.
//   Errors:    more leases than were asked for: kCorrupt. Data that can't be read: the source's.
//   Bounds:    the window: [pipeline] in_flight, or what keeps every peer busy.
#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "pipeline/source/lease_window.h"
#include "pipeline/source/microbatch_source.h"
#include "pipeline/stage/common/stage_context.h"

namespace swarmline {

class LeaseIntake {
 public:
  struct Data {
    SharedBytes tokens, targets;
  };

  LeaseIntake(StageContext& context, std::unique_ptr<MicrobatchSource> source);

  void want();  // asks where the window has room
  void on_finished() { window_.on_finished(); }
  Result<void> take(std::uint64_t leases);
  Result<Data> read(const MicrobatchId& id);

  std::uint64_t wanted() const { return wanted_; }
  std::uint64_t leased() const { return leased_; }
  void check_invariants() const;

 private:
  StageContext& context_;
  const std::unique_ptr<MicrobatchSource> source_;
  LeaseWindow window_;
  std::uint64_t wanted_ = 0;
  std::uint64_t leased_ = 0;
};

}  // namespace swarmline
