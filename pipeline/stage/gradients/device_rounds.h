// Rounds whose sums are in a device's memory: what they send leaves it encoded, and what they end
// with comes there as it travelled (averaging/device_parts.h). On the host is what is between.
//   Ownership: what it is made with outlives it.
//   Thread:    control thread; what is taken and brought are jobs.
//   Errors:    the device's end the peer.
//   Bounds:    the sums of a round in their wire buffers, from when they are complete until they
//              are brought; one round of each group of a step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/callback_guard.h"
#include "pipeline/averaging/averaging_codecs.h"
#include "pipeline/averaging/device_parts.h"
#include "pipeline/averaging/stage_averager.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/common/stage_jobs.h"

namespace swarmline {

class DeviceRounds {
 public:
  using Round = StageAverager::Round;

  DeviceRounds(StageContext& context, StageJobs& jobs, AveragingCodecs& codecs)
      : context_(context), jobs_(jobs), codecs_(codecs) {}

  // Without islands, or of those who speak for one.
  bool takes_values() const;
  // [device] Where the values of the round's region are.
  using Values = std::function<Result<DeviceAddress>()>;
  using Bring = ParameterState::Bring;
  // `first`: where the region begins, in bytes. `start`: of the round when what it sends is here,
  // with what brings the sums to where the average belongs; unless drop() came before.
  void begin(Round round, std::uint64_t first, Values values,
             std::function<void(Round, Bring)> start);
  // Of earlier attempts at the group's round, or of a step that is over.
  void drop(const std::function<bool(const RoundKey&)>& which);
  // Of one member alone: its values, with what is left from the step before.
  Bring alone(const RoundKey& key, std::uint64_t first, std::uint64_t bytes);
  void silence() { guard_.drop_callbacks(); }

 private:
  struct Sums {
    ButterflySpec spec;
    BytesView residual;  // the next one; empty: no error feedback
    DeviceAddress next = nullptr;
    std::vector<SharedBytes> wires;  // by number
  };
  Result<void> take(Round& round, Sums& sums, std::uint64_t first, DeviceAddress values,
                    std::uint64_t turn);
  Result<DeviceGradients::Feedback> feedback_of(std::uint64_t turn, std::uint64_t first);
  Bring landing(std::shared_ptr<Sums> sums);

  StageContext& context_;
  StageJobs& jobs_;
  AveragingCodecs& codecs_;
  std::map<RoundKey, std::shared_ptr<Sums>> rounds_;
  CallbackGuard guard_;
};

}  // namespace swarmline
