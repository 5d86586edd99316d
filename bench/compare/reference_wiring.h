// The wiring rule of SWARM's published implementation (yandex-research/swarm, balancer.py and
// performance_ema.py), to run in our protocol beside our own:
//   - the least cumulative expected time is picked and charged at once, ties at random;
//   - expected seconds of a unit of work: one bias-corrected moving average (alpha 0.1) a peer over
//     the wall time of its calls, queue and network included; 1 s until the first;
//   - a forward is 1 unit, a backward 2.5; both calls of a microbatch go to the same peer here, so
//     its pick charges 3.5;
//   - a newcomer enters at the least cumulative time; a timeout is charged to nobody; no bound on
//     what is in flight to a peer.
// Wall times do not pass through Wiring: whoever sees the frames tells observe().
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "pipeline/wiring/wiring.h"

namespace swarmline::bench {

class ReferenceWiring final : public Wiring {
 public:
  static constexpr double kAlpha = 0.1;
  static constexpr double kInitialSeconds = 1.0;
  static constexpr double kBackwardUnits = 2.5;

  explicit ReferenceWiring(std::uint64_t seed) : rng_(seed) {}

  // A call to `peer` took so long; `units` of work.
  void observe(PeerId peer, double seconds, double units);

  bool add(PeerId peer, const ServicePrior& prior) override;
  void remove(PeerId peer) override;
  std::optional<PeerId> pick(const MicrobatchId& microbatch,
                             const std::vector<PeerId>& exclude) override;
  void on_sent(PeerId, Duration) override {}
  void on_forward_done(PeerId, Duration) override {}
  void on_backward_done(PeerId, Duration) override {}
  void on_settled(PeerId peer) override;
  void on_timeout(PeerId, Duration) override {}
  void on_full(PeerId peer) override;
  void on_credit(PeerId peer) override;
  void on_heard(PeerId) override {}
  std::vector<PeerShare> shares() const override;

 private:
  struct Candidate {
    PeerShare share;
    double cumulative = 0;  // seconds
    double average = 0;     // not yet corrected
    double weight = 0;      // 1 - (1 - alpha)^n
    double seconds() const { return weight > 0 ? average / weight : kInitialSeconds; }
  };
  Candidate* find(PeerId peer);

  Rng rng_;
  std::vector<Candidate> candidates_;  // sorted by peer
};

}  // namespace swarmline::bench
