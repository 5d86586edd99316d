// One attempt at one microbatch at this stage, from its arrival to the gradient sent on.
//   Ownership: handed from part to part; each writes its own share of it: Admission how it came and
//              its output, Forwarder the way on, Returner the way back. `state` is written by the
//              part that has it, kOver by the router alone.
//   Thread:    control thread; jobs on the device read it. Bounds: those of Admission.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

// Tasks of a peer whose weight gradients are left for later; what they are made of stays in the
// model's memory. The next ones go before other work: if it gets slow, nobody can add them for it.
// Fewer at the last stage, which would keep little else, and whose gradients of logits are large.
inline constexpr std::uint32_t kAddingMax = 4, kAddingMaxAtLast = 2;

enum class TaskState : std::uint8_t {
  kHeld,        // waiting for its turn in the order of [pipeline] order
  kForward,     // waiting for or on the device
  kSeeking,     // computed; no peer of the next stage can take it now
  kDownstream,  // sent on; waiting for its gradient (an evaluation: for the next hop's word)
  kClaiming,    // has its gradient; asks the ledger before it adds
  kBackward,    // waiting for or on the device
  kAdding,      // its gradient has gone on; its weight gradients wait for or are on the device
  kOver,
};

struct MicrobatchTask {
  explicit MicrobatchTask(const AttemptId& attempt) : id(attempt), outgoing(attempt) {}

  AttemptId id;
  PhaseEpoch epoch;  // of its phase, that it was leased in
  Seat upstream;     // peer 0: started here, by the source
  std::string mask;  // stages that want weight gradients; empty = all
  std::uint32_t rows = 0;
  Version version;           // the parameters it is computed on; set when it goes to the device
  Duration arrived_over{};   // that its input took to come
  SharedBytes input;         // wire buffer of the stage input; stage 0: int32 tokens
  SharedBytes input_values;  // the input decoded on arrival; until the forward has used it
  SharedBytes targets;       // int32; where StageContext needs_targets(), and where it started
  std::string targets_wire;  // as they travel

  TaskState state = TaskState::kForward;
  bool cancelled = false;
  bool orphan = false;     // its upstream is gone: nobody waits for its gradient
  bool has_graph = false;  // the model keeps a graph that backward has not consumed
  std::uint64_t admitted_bytes = 0;
  std::uint64_t forward_job = 0;  // in the device's queue

  // The way on: Forwarder's, but for the output.
  Seat next;
  AttemptId outgoing;  // the name it goes on by; until it is sent a second time, its own
  SharedBytes
      output;  // wire buffer, kept until the gradient is back: for another peer if this one stalls
  std::vector<PeerId> tried;
  std::uint32_t sends = 0;
  Instant failing_since{};  // the first try that nobody took; unset: there was none
  Instant rests_until{};    // all were tried, and have a moment before they are tried again
  bool hop_open = false;    // picked and not yet settled with the wiring
  bool passed_by = false;   // had its early second try
  bool earned = false;      // its part of such a try
  Instant hop_began{};      // what the timer runs for; one leg of the hop
  TimerId hop_timer;

  // The way back: Returner's.
  SharedBytes
      gradient;  // wire buffer of the output's gradient, kept until the report is acknowledged
  SharedBytes gradient_values;  // the same decoded on arrival; until the backward has used it
  PeerId through;               // of the next stage, whose gradient it is
  TimerId arrival_timer;        // waits for the upstream's word that it has our gradient
  double loss_sum = 0;

  bool train() const { return id.microbatch.phase.kind == PhaseKind::kTrain; }
  bool local() const { return upstream.peer.value == 0; }
};

using TaskPtr = std::shared_ptr<MicrobatchTask>;

}  // namespace swarmline
