// Interleaved weighted round-robin: shares of work proportional to speed (SWARM, Ryabinin et al.,
// ICML 2023, appendix C).
//
// Every candidate has a cumulative expected time; pick() takes the least and adds the expected
// service of the microbatch (forward and backward; forward alone for an evaluation) at once.
// Expected service is a bias-corrected moving average of what the receiver reports, forward and
// backward apart, their sum floored by the average link occupancy of either way: what is slowest
// of the three says how much that peer can take. Without samples: the peer's
// prior, else the median of the others, else kUnknownService. What a microbatch is charged at a
// peer is that, times a price: by how many microbatches the peer's backlog is above or below the
// candidates' median, kPriceOfBacklog for each beyond kBacklogFree. So where some senders reach a
// peer over a slow link, and send it little, others fill its device; among peers that all reach
// alike the shares stay those of speed. A joiner and a peer back from a ban
// enter at the highest cumulative time of the others (a stall charged to one of them left out), so
// that nobody rushes at them; a joiner may have only `warmup_in_flight` under way until
// `warmup_samples` answers came. A candidate that had no room makes up at most the work of one full
// set of microbatches in flight. A weight other than 1 makes shares speed times weight: time is
// charged over the weight, and whose weight changes is no further ahead than a joiner.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "pipeline/wiring/wiring.h"

namespace swarmline {

struct WiringOptions {
  double alpha = 0.1;               // weight of the newest observation, (0, 1]
  std::uint32_t in_flight_max = 8;  // per candidate, 1..Limits::in_flight_per_next_peer_max
  std::uint32_t warmup_in_flight = 2;
  std::uint32_t warmup_samples = 4;
  std::uint64_t seed = 0;  // breaks ties: give each sender its own
};

class WiringRouter final : public Wiring {
 public:
  static constexpr Duration kUnknownService = std::chrono::milliseconds(10);
  static constexpr double kBackwardPerForward = 2.0;  // until a backward was seen
  static constexpr double kBacklogFree = 1;           // microbatches' device time, either way
  static constexpr double kPriceOfBacklog = 0.3;      // for each beyond
  static constexpr double kPriceMax = 3;              // and no less than its inverse

  explicit WiringRouter(const WiringOptions& options);

  bool add(PeerId peer, const ServicePrior& prior) override;
  void remove(PeerId peer) override;
  void set_weight(PeerId peer, double weight) override;
  std::optional<PeerId> pick(const MicrobatchId& microbatch,
                             const std::vector<PeerId>& exclude) override;
  // By the expected time of all that is in flight there and this one; charged like any other.
  std::optional<PeerId> pick_soonest(const MicrobatchId& microbatch,
                                     const std::vector<PeerId>& exclude) override;
  void on_sent(PeerId peer, Duration link) override;
  void on_returned(PeerId peer, Duration link) override;
  void on_forward_done(PeerId peer, Duration service) override;
  void on_backward_done(PeerId peer, Duration service) override;
  void on_backlog(PeerId peer, Duration waiting) override;
  void on_settled(PeerId peer) override;
  void on_timeout(PeerId peer, Duration charged) override;
  void on_full(PeerId peer) override;
  void on_credit(PeerId peer) override;
  void on_heard(PeerId peer) override;
  std::vector<PeerShare> shares() const override;

 private:
  // Bias-corrected exponential moving average, in seconds (Kingma and Ba, ICLR 2015, section 3).
  struct Average {
    double sum = 0;
    double weight = 0;  // 1 - (1 - alpha)^n
    std::uint32_t samples = 0;
    void add(Duration observed, double alpha);
    double value() const { return sum / weight; }
    double value_or_zero() const { return samples > 0 ? value() : 0; }
  };
  struct Candidate {
    PeerId peer;
    ServicePrior prior;
    Average forward;
    Average backward;
    Average link_there;
    Average link_back;
    Average backlog;
    double weight = 1;
    double cumulative = 0;   // seconds of expected service handed out over the weight, rebased
    double last_charge = 0;  // seconds, for giving it back
    std::uint64_t tie = 0;
    std::uint64_t picks = 0;
    std::uint32_t in_flight = 0;
    bool joining = true;
    bool banned = false;
    bool full = false;
  };

  Candidate* find(PeerId peer);
  static double known_forward(const Candidate& candidate);  // seconds; 0: unknown
  double median_forward() const;
  double forward_seconds(const Candidate& candidate) const;
  double backward_seconds(const Candidate& candidate) const;
  static double link_seconds(const Candidate& candidate, PhaseKind kind);  // 0: not measured
  double expected_seconds(const Candidate& candidate, PhaseKind kind) const;
  double price(const Candidate& candidate) const;
  double charge(const Candidate& candidate, PhaseKind kind) const;  // seconds, what is paid
  PeerId take(Candidate& candidate, PhaseKind kind);
  bool can_take(const Candidate& candidate, const std::vector<PeerId>& exclude) const;
  double entry_of(PeerId peer) const;
  void observe(PeerId peer, Average Candidate::* average, Duration service);
  void observe_link(PeerId peer, Average Candidate::* average, Duration link);
  void end_ban(Candidate& candidate);
  void bound_lag(double now, PhaseKind kind);
  void rebase();

  WiringOptions options_;
  std::vector<Candidate> candidates_;  // sorted by peer
  double usual_backlog_ = 0;           // seconds; the median of those that report one
};

}  // namespace swarmline
