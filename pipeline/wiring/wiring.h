// Wiring: which peer of the next stage takes one microbatch.
//
// Life of a hop, as the sender tells it:
//   pick -> on_full                                   refused: charge and room are given back, no
//   pick until on_credit
//        -> on_sent, on_forward_done -> on_returned, on_backward_done -> on_settled
// on_backlog comes with either answer.
// on_settled ends every pick that was not refused, once, however it went (gradient back, re-sent,
// cancelled, peer lost).
//   Thread: control thread. No clock: durations are passed in. Events of unknown peers are ignored
//           (they may be late). Bounds: Limits::next_candidates_max candidates.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/units.h"

namespace swarmline {

// What passes a relay crosses the network twice.
inline constexpr int kRelayCrossings = 2;
// Of set_weight(); the least is 1 over it.
inline constexpr double kSendWeightMax = 64;

// What a candidate measured of itself, for one microbatch; zero: unknown.
struct ServicePrior {
  Duration forward{};
  Duration backward{};
};

// For metrics and log.jsonl.
struct PeerShare {
  PeerId peer;
  std::uint64_t picks = 0;      // not counting refused ones
  Duration expected_forward{};  // service of one microbatch as this sender expects it
  Duration expected_backward{};
  Duration expected_link{};  // the longer of the two ways; zero: not measured
  Duration backlog{};        // usually before its device; zero: not reported
  std::uint32_t in_flight = 0;
  bool banned = false;
  bool full = false;
};

class Wiring {
 public:
  virtual ~Wiring() = default;

  // Adding a known peer only renews its prior. False: no room for another candidate.
  virtual bool add(PeerId peer, const ServicePrior& prior) = 0;
  virtual void remove(PeerId peer) = 0;
  // Its share of the work is its speed times that, 1 over kSendWeightMax to kSendWeightMax; 1 until
  // it is set.
  virtual void set_weight(PeerId /*peer*/, double /*weight*/) {}

  // Empty: nobody can take it now (all excluded, full, banned or at their cap): wait for a credit
  // or a settled hop.
  virtual std::optional<PeerId> pick(const MicrobatchId& microbatch,
                                     const std::vector<PeerId>& exclude) = 0;
  // The same for a microbatch that is late already: whoever is expected to end it first, where the
  // wiring has a choice.
  virtual std::optional<PeerId> pick_soonest(const MicrobatchId& microbatch,
                                             const std::vector<PeerId>& exclude) {
    return pick(microbatch, exclude);
  }

  // `link`: how long this microbatch's bytes occupied the link (bytes over bandwidth), said once
  // that is known, and times kRelayCrossings where they pass a relay; zero: not measured.
  virtual void on_sent(PeerId peer, Duration link) = 0;
  // The same of its gradient's bytes, which come the other way.
  virtual void on_returned(PeerId /*peer*/, Duration /*link*/) {}
  // `service`: the device time the receiver reports, without its queue.
  virtual void on_forward_done(PeerId peer, Duration service) = 0;
  virtual void on_backward_done(PeerId peer, Duration service) = 0;
  // `waiting`: device time of what waits for the receiver's device, whoever sent it, as it reports
  // with each answer.
  virtual void on_backlog(PeerId /*peer*/, Duration /*waiting*/) {}
  virtual void on_settled(PeerId peer) = 0;
  // The peer stalled: it is banned until heard from, and `charged` counts as work it was given.
  // Further timeouts while it is banned belong to the same stall and cost nothing more.
  virtual void on_timeout(PeerId peer, Duration charged) = 0;
  virtual void on_full(PeerId peer) = 0;
  virtual void on_credit(PeerId peer) = 0;
  virtual void on_heard(PeerId peer) = 0;

  virtual std::vector<PeerShare> shares() const = 0;  // sorted by peer
};

}  // namespace swarmline
