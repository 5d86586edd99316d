// What a stage's microbatches send to the stages before and after it, and what that costs.
//   What:      everything a step's microbatches make two stages send each other is on that
//              boundary's account: what is neither tensor nor target tokens is framing.
//              Evaluations, and what is sent after a step was retired, are on nobody's.
//   Units:     bytes and messages at the sender's socket; nanoseconds of device time.
//   Ownership: owns the accounts; reads the phases.
//   Thread:    control thread. Errors: none.
//   Bounds:    one account per open phase.
#pragma once

#include <cstdint>
#include <map>

#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/common/phase_book.h"
#include "pipeline/stage/common/stage_context.h"

namespace swarmline {

class BoundaryTraffic {
 public:
  BoundaryTraffic(StageContext& context, const PhaseBook& phases)
      : context_(context), phases_(phases) {}

  // `tokens`: bytes of target tokens that ride along.
  void send_next(const Seat& to, const Phase& phase, Frame frame, std::uint64_t tokens = 0);
  void send_back(const Seat& to, const Phase& phase, Frame frame);
  void tried_early(const Phase& phase);
  // `passes`: of the three of a microbatch (wire::Reduced).
  void computed(const Phase& phase, Duration device_time, std::uint32_t passes);
  struct Work {
    std::uint64_t busy_ns = 0;
    std::uint32_t passes = 0;
  };
  // End that phase's accounts.
  void take(const Phase& phase, wire::BoundaryBytes& report);
  Work take_work(const Phase& phase);
  void check_invariants() const;

 private:
  struct OneWay {
    std::uint64_t codec = 0;
    std::uint64_t tokens = 0;
    std::uint64_t framing = 0;
    std::uint32_t messages = 0;
    void add(const Frame& frame, std::uint64_t tokens_in_it);
  };
  struct Account {
    OneWay forward, backward;
    std::uint32_t early_tries = 0;
  };
  bool counts(const Phase& phase) const;

  StageContext& context_;
  const PhaseBook& phases_;
  std::map<Phase, Account> accounts_;
  std::map<Phase, Work> works_;
};

// A tensor came that does not decode: its bytes changed on the way, most likely.
void note_damaged_tensor(const StageContext& context, MessageKind kind, const Seat& from,
                         const Error& error);

}  // namespace swarmline
