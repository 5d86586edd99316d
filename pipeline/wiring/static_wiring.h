// Fixed routes, the baseline: microbatch i goes to candidate (i mod n), candidates sorted by peer
// id. A full or banned candidate makes the sender wait; only an excluded one is passed over (to the
// next in order).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/wiring/wiring.h"

namespace swarmline {

class StaticWiring final : public Wiring {
 public:
  // `in_flight_max`: per candidate, 1..Limits::in_flight_per_next_peer_max.
  explicit StaticWiring(std::uint32_t in_flight_max);

  bool add(PeerId peer, const ServicePrior& prior) override;
  void remove(PeerId peer) override;
  std::optional<PeerId> pick(const MicrobatchId& microbatch,
                             const std::vector<PeerId>& exclude) override;
  void on_sent(PeerId peer, Duration link) override;
  void on_forward_done(PeerId peer, Duration service) override;
  void on_backward_done(PeerId peer, Duration service) override;
  void on_settled(PeerId peer) override;
  void on_timeout(PeerId peer, Duration charged) override;
  void on_full(PeerId peer) override;
  void on_credit(PeerId peer) override;
  void on_heard(PeerId peer) override;
  std::vector<PeerShare> shares() const override;

 private:
  PeerShare* find(PeerId peer);

  std::uint32_t in_flight_max_;
  std::vector<PeerShare> candidates_;  // sorted by peer; expected_* hold the latest observation
};

}  // namespace swarmline
