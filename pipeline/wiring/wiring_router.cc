#include "pipeline/wiring/wiring_router.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/limits.h"
#include "base/marks.h"
#include "base/order_statistics.h"
#include "base/rng.h"

namespace swarmline {
namespace {

// Receivers' reports are believed within these: a service of zero would draw every microbatch.
constexpr Duration kServiceMin = std::chrono::microseconds(1);
constexpr Duration kServiceMax = std::chrono::hours(1);
// Cumulative seconds beyond which all are lowered alike, so that adding microseconds stays exact.
constexpr double kRebaseSeconds = 1024;

double believable_seconds(Duration observed) {
  return to_seconds(std::clamp(observed, kServiceMin, kServiceMax));
}

}  // namespace

WiringRouter::WiringRouter(const WiringOptions& options) : options_(options) {
  SWARMLINE_CHECK(options.alpha > 0 && options.alpha <= 1);
  SWARMLINE_CHECK(options.in_flight_max >= 1 &&
                  options.in_flight_max <=
                      static_cast<std::uint32_t>(Limits::in_flight_per_next_peer_max));
  SWARMLINE_CHECK(options.warmup_in_flight >= 1);
}

void WiringRouter::Average::add(Duration observed, double alpha) {
  sum = (1 - alpha) * sum + alpha * believable_seconds(observed);
  weight = (1 - alpha) * weight + alpha;
  ++samples;
}

// Membership

WiringRouter::Candidate* WiringRouter::find(PeerId peer) {
  const auto at = std::lower_bound(candidates_.begin(), candidates_.end(), peer,
                                   [](const Candidate& c, PeerId p) { return c.peer < p; });
  return at != candidates_.end() && at->peer == peer ? &*at : nullptr;
}

bool WiringRouter::add(PeerId peer, const ServicePrior& prior) {
  if (Candidate* known = find(peer)) {
    known->prior = prior;
    return true;
  }
  if (candidates_.size() >= static_cast<std::size_t>(Limits::next_candidates_max)) {
    SWARMLINE_MARK("wiring.more_candidates_than_room");
    return false;
  }
  Candidate candidate;
  candidate.peer = peer;
  candidate.prior = prior;
  candidate.cumulative = entry_of(peer);
  candidate.tie = mix(options_.seed, peer.value);
  if (candidate.cumulative > 0) SWARMLINE_MARK("wiring.joined_at_the_highest");
  const auto at = std::lower_bound(candidates_.begin(), candidates_.end(), peer,
                                   [](const Candidate& c, PeerId p) { return c.peer < p; });
  candidates_.insert(at, candidate);
  return true;
}

void WiringRouter::remove(PeerId peer) {
  std::erase_if(candidates_, [&](const Candidate& c) { return c.peer == peer; });
}

void WiringRouter::set_weight(PeerId peer, double weight) {
  SWARMLINE_CHECK(weight >= 1 / kSendWeightMax && weight <= kSendWeightMax);
  Candidate* candidate = find(peer);
  if (candidate == nullptr || candidate->weight == weight) return;
  SWARMLINE_MARK("wiring.weighed");
  candidate->weight = weight;
  candidate->cumulative = std::min(candidate->cumulative, entry_of(peer));
}

// The highest cumulative time of the others. Round-robin alone keeps them within one service of
// each other; whoever is further ahead was charged a stall, which is his own affair.
double WiringRouter::entry_of(PeerId peer) const {
  double lowest = std::numeric_limits<double>::infinity();
  double highest = 0;
  double service = 0;
  for (const Candidate& other : candidates_) {
    if (other.peer == peer || other.banned) continue;
    lowest = std::min(lowest, other.cumulative);
    highest = std::max(highest, other.cumulative);
    service = std::max(service, expected_seconds(other, PhaseKind::kTrain));
  }
  return std::min(highest, lowest + service);
}

// Expectations

double WiringRouter::known_forward(const Candidate& candidate) {
  if (candidate.forward.samples > 0) return candidate.forward.value();
  const Duration prior = candidate.prior.forward;
  return prior > Duration::zero() ? believable_seconds(prior) : 0;
}

double WiringRouter::median_forward() const {
  std::vector<double> known;
  for (const Candidate& candidate : candidates_) {
    if (const double seconds = known_forward(candidate); seconds > 0) known.push_back(seconds);
  }
  if (known.empty()) return to_seconds(kUnknownService);
  return median(std::move(known));
}

double WiringRouter::forward_seconds(const Candidate& candidate) const {
  const double known = known_forward(candidate);
  return known > 0 ? known : median_forward();
}

double WiringRouter::backward_seconds(const Candidate& candidate) const {
  if (candidate.backward.samples > 0) return candidate.backward.value();
  const Duration prior = candidate.prior.backward;
  if (prior > Duration::zero()) return believable_seconds(prior);
  return kBackwardPerForward * forward_seconds(candidate);
}

double WiringRouter::link_seconds(const Candidate& candidate, PhaseKind kind) {
  const double there = candidate.link_there.value_or_zero();
  return kind == PhaseKind::kTrain ? std::max(there, candidate.link_back.value_or_zero()) : there;
}

double WiringRouter::expected_seconds(const Candidate& candidate, PhaseKind kind) const {
  double seconds = forward_seconds(candidate);
  if (kind == PhaseKind::kTrain) seconds += backward_seconds(candidate);
  return std::max(seconds, link_seconds(candidate, kind));
}

double WiringRouter::price(const Candidate& candidate) const {
  if (candidate.backlog.samples == 0) return 1;
  const double service = forward_seconds(candidate) + backward_seconds(candidate);
  const double more = (candidate.backlog.value() - usual_backlog_) / service;
  const double beyond = more - std::clamp(more, -kBacklogFree, kBacklogFree);
  return std::clamp(1 + kPriceOfBacklog * beyond, 1 / kPriceMax, kPriceMax);
}

double WiringRouter::charge(const Candidate& candidate, PhaseKind kind) const {
  return price(candidate) * expected_seconds(candidate, kind) / candidate.weight;
}

// Picking

bool WiringRouter::can_take(const Candidate& candidate, const std::vector<PeerId>& exclude) const {
  if (candidate.banned || candidate.full) return false;
  const std::uint32_t room = candidate.joining
                                 ? std::min(options_.warmup_in_flight, options_.in_flight_max)
                                 : options_.in_flight_max;
  if (candidate.in_flight >= room) {
    if (candidate.in_flight < options_.in_flight_max) SWARMLINE_MARK("wiring.joiner_spared");
    return false;
  }
  return std::find(exclude.begin(), exclude.end(), candidate.peer) == exclude.end();
}

std::optional<PeerId> WiringRouter::pick(const MicrobatchId& microbatch,
                                         const std::vector<PeerId>& exclude) {
  Candidate* best = nullptr;
  for (Candidate& candidate : candidates_) {
    if (!can_take(candidate, exclude)) continue;
    const bool better = best == nullptr || candidate.cumulative < best->cumulative ||
                        (candidate.cumulative == best->cumulative && candidate.tie < best->tie);
    if (better) best = &candidate;
  }
  if (best == nullptr) {
    SWARMLINE_MARK("wiring.nobody_has_room");
    return std::nullopt;
  }
  bound_lag(best->cumulative, microbatch.phase.kind);
  return take(*best, microbatch.phase.kind);
}

std::optional<PeerId> WiringRouter::pick_soonest(const MicrobatchId& microbatch,
                                                 const std::vector<PeerId>& exclude) {
  const PhaseKind kind = microbatch.phase.kind;
  Candidate* best = nullptr;
  double soonest = std::numeric_limits<double>::infinity();
  for (Candidate& candidate : candidates_) {
    if (!can_take(candidate, exclude)) continue;
    const double end = (candidate.in_flight + 1) * expected_seconds(candidate, kind);
    if (end >= soonest) continue;
    best = &candidate;
    soonest = end;
  }
  if (best == nullptr) return std::nullopt;
  SWARMLINE_MARK("wiring.picked_the_soonest");
  return take(*best, kind);
}

PeerId WiringRouter::take(Candidate& candidate, PhaseKind kind) {
  candidate.last_charge = charge(candidate, kind);
  candidate.cumulative += candidate.last_charge;
  ++candidate.in_flight;
  ++candidate.picks;
  rebase();
  return candidate.peer;
}

// `now`: the least cumulative time of those with room. Who had none may not save up more than he
// could have under way.
void WiringRouter::bound_lag(double now, PhaseKind kind) {
  for (Candidate& candidate : candidates_) {
    const double lag_max = options_.in_flight_max * charge(candidate, kind);
    if (candidate.cumulative >= now - lag_max) continue;
    SWARMLINE_MARK("wiring.lag_bounded");
    candidate.cumulative = now - lag_max;
  }
}

void WiringRouter::rebase() {
  double lowest = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates_) lowest = std::min(lowest, candidate.cumulative);
  if (lowest < kRebaseSeconds) return;
  SWARMLINE_MARK("wiring.rebased");
  for (Candidate& candidate : candidates_) candidate.cumulative -= lowest;
}

// What the sender sees

void WiringRouter::observe(PeerId peer, Average Candidate::* average, Duration service) {
  Candidate* candidate = find(peer);
  if (candidate == nullptr) return;
  end_ban(*candidate);
  (candidate->*average).add(service, options_.alpha);
  const std::uint32_t samples = candidate->forward.samples;
  if (!candidate->joining || samples < options_.warmup_samples) return;
  SWARMLINE_MARK("wiring.warmed_up");
  candidate->joining = false;
}

void WiringRouter::observe_link(PeerId peer, Average Candidate::* average, Duration link) {
  Candidate* candidate = find(peer);
  if (candidate != nullptr && link > Duration::zero())
    (candidate->*average).add(link, options_.alpha);
}

void WiringRouter::on_sent(PeerId peer, Duration link) {
  observe_link(peer, &Candidate::link_there, link);
}

void WiringRouter::on_returned(PeerId peer, Duration link) {
  observe_link(peer, &Candidate::link_back, link);
}

void WiringRouter::on_backlog(PeerId peer, Duration waiting) {
  Candidate* candidate = find(peer);
  if (candidate == nullptr) return;
  candidate->backlog.add(waiting, options_.alpha);
  std::vector<double> backlogs;
  for (const Candidate& one : candidates_)
    if (one.backlog.samples > 0) backlogs.push_back(one.backlog.value());
  usual_backlog_ = median(std::move(backlogs));
}

void WiringRouter::on_forward_done(PeerId peer, Duration service) {
  observe(peer, &Candidate::forward, service);
}

void WiringRouter::on_backward_done(PeerId peer, Duration service) {
  observe(peer, &Candidate::backward, service);
}

void WiringRouter::on_settled(PeerId peer) {
  Candidate* candidate = find(peer);
  if (candidate != nullptr && candidate->in_flight > 0) --candidate->in_flight;
}

void WiringRouter::on_timeout(PeerId peer, Duration charged) {
  Candidate* candidate = find(peer);
  if (candidate == nullptr || candidate->banned) return;
  SWARMLINE_MARK("wiring.banned");
  candidate->banned = true;
  candidate->cumulative += believable_seconds(charged);
}

void WiringRouter::on_full(PeerId peer) {
  Candidate* candidate = find(peer);
  if (candidate == nullptr) return;
  SWARMLINE_MARK("wiring.full");
  candidate->full = true;
  if (candidate->in_flight == 0) return;  // removed and added again meanwhile
  --candidate->in_flight;
  candidate->picks -= std::min<std::uint64_t>(candidate->picks, 1);
  candidate->cumulative -= candidate->last_charge;
  candidate->last_charge = 0;
}

void WiringRouter::on_credit(PeerId peer) {
  Candidate* candidate = find(peer);
  if (candidate == nullptr) return;
  if (candidate->full) SWARMLINE_MARK("wiring.has_room_again");
  candidate->full = false;
  end_ban(*candidate);
}

void WiringRouter::on_heard(PeerId peer) {
  if (Candidate* candidate = find(peer)) end_ban(*candidate);
}

void WiringRouter::end_ban(Candidate& candidate) {
  if (!candidate.banned) return;
  SWARMLINE_MARK("wiring.back_from_a_ban");
  candidate.banned = false;
  candidate.cumulative = std::max(candidate.cumulative, entry_of(candidate.peer));
}

std::vector<PeerShare> WiringRouter::shares() const {
  std::vector<PeerShare> result;
  for (const Candidate& candidate : candidates_) {
    result.push_back({.peer = candidate.peer,
                      .picks = candidate.picks,
                      .expected_forward = from_seconds(forward_seconds(candidate)),
                      .expected_backward = from_seconds(backward_seconds(candidate)),
                      .expected_link = from_seconds(link_seconds(candidate, PhaseKind::kTrain)),
                      .backlog = from_seconds(candidate.backlog.value_or_zero()),
                      .in_flight = candidate.in_flight,
                      .banned = candidate.banned,
                      .full = candidate.full});
  }
  return result;
}

}  // namespace swarmline
