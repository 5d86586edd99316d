// How many microbatches a source takes, and their data.
//   What:      asks the coordinator for leases up to a window, one more for each microbatch that
//              ended. Everybody but stage 0 has no source and asks for none. Where the data is
//              fetched, a lease is held until its pieces are here; pieces of what is likely to be
//              leased next are fetched ahead.
//   Units:     microbatches, counted since the seat was taken.
//   Ownership: owns the source and the counts.
//   Thread:    control thread.
//   Errors:    more leases than were asked for: kCorrupt. Data that can't be read: the source's.
//   Bounds:    the window: [pipeline] in_flight, or twice what keeps every peer busy, of which the
//              coordinator gives this peer its share (SourceShares); less while this peer is slow
//              (Slowdown); kAhead microbatches ahead.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "pipeline/source/lease_window.h"
#include "pipeline/source/microbatch_source.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/data/data_fetch.h"

namespace swarmline {

class LeaseIntake {
 public:
  static constexpr std::uint32_t kAhead = 4;
  struct Held {  // until its data is here
    AttemptId attempt;
    PhaseEpoch epoch;
    std::string stage_mask;
    std::vector<std::uint32_t> pieces;
  };
  struct Data {
    SharedBytes tokens, targets;
  };

  LeaseIntake(StageContext& context, std::unique_ptr<MicrobatchSource> source, DataFetch& data);

  void want();  // asks where the window has room
  void on_finished() { window_.on_finished(); }
  Result<void> take(std::uint64_t leases);
  Result<Data> read(const MicrobatchId& id);

  // False: its data is here.
  bool hold(const AttemptId& attempt, PhaseEpoch epoch, const std::string& stage_mask);
  bool holds(const AttemptId& attempt) const;
  std::vector<Held> take_ready();  // held ones whose pieces are here; then they must be read
  std::vector<Held> drop(const std::function<bool(const Held&)>& over);
  void fetch();  // what those that are held need, and what comes next
  const std::deque<Held>& held() const { return held_; }

  std::uint64_t wanted() const { return wanted_; }
  std::uint64_t leased() const { return leased_; }
  std::uint64_t finished() const { return window_.finished(); }
  void check_invariants() const;

 private:
  DataFetch::Pieces ahead() const;

  StageContext& context_;
  DataFetch& data_;
  const std::unique_ptr<MicrobatchSource> source_;
  LeaseWindow window_;
  std::uint64_t wanted_ = 0;
  std::uint64_t told_finished_ = 0;
  std::uint64_t leased_ = 0;
  std::deque<Held> held_;                 // in the order in which they were leased
  std::optional<MicrobatchId> furthest_;  // of a step, that was held
};

}  // namespace swarmline
