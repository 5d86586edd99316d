#include "balancer/plan_board.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/limits.h"

namespace swarmline {
namespace {

// Grid points below the fastest peer's speed: with 53 bits in a double, sums of 2^17 peers are
// exact.
constexpr int kSpeedBits = 36;

std::vector<double> rounded_speeds(const std::vector<PlanPeer>& peers) {
  double fastest = 0;
  for (const PlanPeer& peer : peers) {
    SWARMLINE_CHECK(peer.speed > 0 && std::isfinite(peer.speed));
    fastest = std::max(fastest, peer.speed);
  }
  int exponent = 0;
  std::frexp(fastest, &exponent);
  const double grid = std::ldexp(1.0, exponent - kSpeedBits);
  std::vector<double> speeds;
  for (const PlanPeer& peer : peers) {
    speeds.push_back(std::max(1.0, std::nearbyint(peer.speed / grid)) * grid);
  }
  return speeds;
}

}  // namespace

PlanBoard::PlanBoard(const PlanSnapshot& snapshot, const PlanOptions& options)
    : stages_(snapshot.stages),
      peers_(snapshot.peers),
      link_bits_per_second_(options.link_bits_per_second),
      speeds_(rounded_speeds(peers_)),
      seats_(peers_.size()),
      sums_(stages_.size()) {
  for (const PlanStage& stage : stages_) SWARMLINE_CHECK(stage.cost > 0);
  LocationTally all;
  for (const PlanPeer& peer : peers_) all.add(peer.at);
  on_one_host_ = all.redundancy() <= Redundancy::kOneHost;
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    if (peers_[p].stage) sit(p, index_of(*peers_[p].stage), !peers_[p].arriving);
    for (const PlanShadow& shadow : peers_[p].shadows)
      if (shadow.ready && shadow.stage != peers_[p].stage) {
        sums_[index_of(shadow.stage)].holders.add(peers_[p].at);
        sums_[index_of(shadow.stage)].present_holders.add(peers_[p].at);
      }
  }
}

double PlanBoard::slowest() const {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t s = 0; s < stages_.size(); ++s) least = std::min(least, throughput(s));
  return stages_.empty() ? 0 : least;
}

double PlanBoard::present_slowest() const {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t s = 0; s < stages_.size(); ++s) least = std::min(least, present_throughput(s));
  return stages_.empty() ? 0 : least;
}

bool PlanBoard::holds(std::size_t p, std::size_t s) const {
  return std::ranges::any_of(peers_[p].shadows, [&](const PlanShadow& shadow) {
    return shadow.ready && index_of(shadow.stage) == s;
  });
}

bool PlanBoard::follows(std::size_t p, std::size_t s) const {
  return std::ranges::any_of(peers_[p].shadows,
                             [&](const PlanShadow& shadow) { return index_of(shadow.stage) == s; });
}

bool PlanBoard::fits(std::size_t p, std::size_t s) const {
  if (seats_[p].stage != s && std::cmp_greater_equal(sums_[s].serving, Limits::stage_peers_max))
    return false;  // more don't average together
  if (is_barred(p, s)) return false;
  return peers_[p].memory_bytes == 0 || peers_[p].memory_bytes >= stages_[s].memory_bytes;
}

double PlanBoard::download_seconds(std::size_t p, std::size_t s) const {
  const double link =
      peers_[p].link_bits_per_second > 0 ? peers_[p].link_bits_per_second : link_bits_per_second_;
  return static_cast<double>(stages_[s].state_bytes) * 8 / link;
}

bool PlanBoard::can_leave(std::size_t p) const {
  const Seat& seat = seats_[p];
  if (seat.moved || peers_[p].arriving) return false;
  return seat.stage == kNowhere || sums_[seat.stage].present > 1;
}

void PlanBoard::move(std::size_t p, std::size_t to) {
  if (!seats_[p].moved) leave_shadows(p);
  if (seats_[p].stage != kNowhere) rise(p);
  sit(p, to, at_once(p, to));
  seats_[p].moved = true;
}

void PlanBoard::retire(std::size_t p) {
  rise(p);
  seats_[p].moved = true;
}

void PlanBoard::leave_shadows(std::size_t p) {
  for (const PlanShadow& shadow : peers_[p].shadows)
    if (shadow.ready && shadow.stage != peers_[p].stage) {
      sums_[index_of(shadow.stage)].holders.remove(peers_[p].at);
      sums_[index_of(shadow.stage)].present_holders.remove(peers_[p].at);
    }
}

bool PlanBoard::weakens(std::span<const Going> moves, Redundancy least) const {
  if (on_one_host_) return false;
  return weakens(moves, least, /*on_their_way=*/true) ||
         weakens(moves, least, /*on_their_way=*/false);
}

bool PlanBoard::weakens(std::span<const Going> moves, Redundancy least, bool on_their_way) const {
  struct Change {
    std::vector<Location> gone, come;
  };
  std::map<std::size_t, Change> changes;  // by stage
  for (const auto& [p, to] : moves) {
    const Seat& seat = seats_[p];
    const Location& at = peers_[p].at;
    if (seat.stage != kNowhere && (seat.here || !on_their_way))
      changes[seat.stage].gone.push_back(at);
    for (const PlanShadow& shadow : peers_[p].shadows)
      if (!seat.moved && shadow.ready && shadow.stage != peers_[p].stage)
        changes[index_of(shadow.stage)].gone.push_back(at);
    if (at_once(p, to) || !on_their_way) changes[to].come.push_back(at);
  }
  return std::ranges::any_of(changes, [&](const auto& of_stage) {
    const auto& [stage, change] = of_stage;
    const LocationTally& holders =
        on_their_way ? sums_[stage].present_holders : sums_[stage].holders;
    const Redundancy before = holders.redundancy();
    return before >= least && holders.redundancy_after(change.gone, change.come) < before;
  });
}

void PlanBoard::sit(std::size_t p, std::size_t stage, bool here) {
  SWARMLINE_CHECK(stage < stages_.size());
  seats_[p].stage = stage;
  seats_[p].here = here;
  Sums& sums = sums_[stage];
  sums.speed += speeds_[p];
  ++sums.serving;
  sums.holders.add(peers_[p].at);
  if (!here) return;
  sums.present_speed += speeds_[p];
  ++sums.present;
  sums.present_holders.add(peers_[p].at);
}

void PlanBoard::rise(std::size_t p) {
  Seat& seat = seats_[p];
  Sums& sums = sums_[seat.stage];
  sums.speed -= speeds_[p];
  --sums.serving;
  sums.holders.remove(peers_[p].at);
  if (seat.here) {
    sums.present_speed -= speeds_[p];
    --sums.present;
    sums.present_holders.remove(peers_[p].at);
  }
  seat.stage = kNowhere;
  seat.here = false;
}

}  // namespace swarmline
