// The turns of one member's exchanges: what every backend of a FabricGroup does alike.
//   What:      exchanges wait in order; the first one has its turn, which its backend begins and
//              ends. An exchange that does not end in time, or fails, ends the group.
//   Ownership: the runtime outlives it; a member of the group, declared last, so that it goes
//              first. Backend calls come from within exchange(), end_turn(), fail() and a timer.
//   Thread:    control thread.
//   Errors:    as fabric.h says; exchanges that no group takes are CHECKed: ranks, memory, lengths,
//              what is received overlapping anything else.
//   Bounds:    kFabricExchangesMax, `patience` for a turn.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "base/callback_guard.h"
#include "engine/fabric/fabric.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

class FabricTurns {
 public:
  struct Backend {
    // The exchange begins; end_turn() when it has ended, not from within; after a fail() from
    // within `transfers` are gone. Not called for an exchange without transfers.
    std::function<void(const std::vector<FabricTransfer>&)> begin;
    // No memory is touched any more when it returns. Once, before the first done with an error.
    std::function<void()> give_up;
  };

  FabricTurns(Runtime& runtime, std::uint32_t rank, std::uint32_t ranks, Duration patience,
              Backend backend);
  ~FabricTurns();
  FabricTurns(const FabricTurns&) = delete;
  FabricTurns& operator=(const FabricTurns&) = delete;

  void exchange(std::vector<FabricTransfer> transfers, FabricGroup::Done done);
  void end_turn();
  // The group is of no use any more. No effect after the first time.
  void fail(Error error);

  bool has_turn() const { return in_turn_; }    // an exchange is under way
  std::uint64_t turn() const { return turn_; }  // its number, or that of the next one; from 0
  const std::vector<FabricTransfer>& transfers() const { return waiting_.front().transfers; }
  const std::optional<Error>& failure() const { return failure_; }

 private:
  struct Exchange {
    std::vector<FabricTransfer> transfers;
    FabricGroup::Done done;
  };

  void begin_next();
  void say(FabricGroup::Done done, Result<void> result);

  Runtime& runtime_;
  const std::uint32_t rank_, ranks_;
  const Duration patience_;
  const Backend backend_;
  std::deque<Exchange> waiting_;  // the first one has its turn, where one is under way
  bool in_turn_ = false;
  std::uint64_t turn_ = 0;
  TimerId deadline_;
  std::optional<Error> failure_;
  CallbackGuard guard_;
};

}  // namespace swarmline
