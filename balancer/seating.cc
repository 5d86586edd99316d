#include "balancer/seating.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/units.h"

namespace swarmline {
namespace {

// Improvements below this are rounding.
constexpr double kGain = 1 + 1e-9;

double mebibytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(kMiB);
}

bool fits(const PeerFacts& peer, const StageFacts& stage) {
  return peer.memory_bytes == 0 || peer.memory_bytes >= stage.memory_bytes;
}

StageId id_of(std::size_t stage) {
  return StageId(static_cast<std::uint16_t>(stage));
}

class Seater {
 public:
  explicit Seater(const SwarmSnapshot& snapshot)
      : stages_(snapshot.stages),
        peers_(snapshot.peers),
        seat_(peers_.size(), kNowhere),
        count_(stages_.size(), 0),
        speed_(stages_.size(), 0) {
    for (const StageFacts& stage : stages_) {
      SWARMLINE_CHECK(stage.cost > 0);
      need_.push_back(std::max(stage.target, 1U));
    }
    for (const PeerFacts& peer : peers_) SWARMLINE_CHECK(peer.speed > 0);
  }

  Result<std::vector<Seating>> seat() {
    SWARMLINE_TRY(enough_peers());
    if (!fill_needs_by_speed()) {
      stand_up();
      SWARMLINE_TRY(fill_needs_by_memory());
    }
    place_rest();
    if (peers_.size() <= static_cast<std::size_t>(kSeatingSearchPeersMax)) improve();
    std::vector<Seating> seating;
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      if (seat_[p] != kNowhere) seating.push_back({peers_[p].peer, id_of(seat_[p])});
    }
    std::sort(seating.begin(), seating.end());
    return seating;
  }

 private:
  static constexpr std::size_t kNowhere = SIZE_MAX;

  double throughput(std::size_t stage) const { return speed_[stage] / stages_[stage].cost; }

  Result<void> enough_peers() const {
    const std::uint64_t needed = std::accumulate(need_.begin(), need_.end(), std::uint64_t{0});
    if (peers_.size() >= needed) return {};
    return fail(ErrorCode::kRefused,
                fmt::format("{} peers are here, {} stages need {}: start {} more", peers_.size(),
                            stages_.size(), needed, needed - peers_.size()));
  }

  void sit(std::size_t peer, std::size_t stage) {
    seat_[peer] = stage;
    ++count_[stage];
    speed_[stage] += peers_[peer].speed;
  }
  void stand_up() {
    std::fill(seat_.begin(), seat_.end(), kNowhere);
    std::fill(count_.begin(), count_.end(), 0U);
    std::fill(speed_.begin(), speed_.end(), 0.0);
  }
  void rise(std::size_t peer) {
    const std::size_t stage = seat_[peer];
    seat_[peer] = kNowhere;
    --count_[stage];
    // Added up anew: what a subtraction leaves over would make ties depend on history.
    speed_[stage] = 0;
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      if (seat_[p] == stage) speed_[stage] += peers_[p].speed;
    }
  }

  std::vector<std::size_t> fastest_first() const {
    std::vector<std::size_t> order(peers_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (peers_[a].speed != peers_[b].speed) return peers_[a].speed > peers_[b].speed;
      return peers_[a].peer < peers_[b].peer;
    });
    return order;
  }

  // Fastest first, each to the stage below its target that has the least. False: somebody's memory
  // was in the way.
  bool fill_needs_by_speed() {
    std::uint64_t open = std::accumulate(need_.begin(), need_.end(), std::uint64_t{0});
    for (const std::size_t peer : fastest_first()) {
      if (open == 0) break;
      const std::size_t stage = least_served(peer, /*only_needy=*/true);
      if (stage == kNowhere) continue;
      sit(peer, stage);
      --open;
    }
    return open == 0;
  }

  // Whoever fits a stage fits every stage that needs less memory: giving those that need the most
  // the peers with the most finds a seating if there is one.
  Result<void> fill_needs_by_memory() {
    std::vector<std::size_t> stages(stages_.size());
    std::iota(stages.begin(), stages.end(), 0U);
    std::sort(stages.begin(), stages.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(stages_[b].memory_bytes, a) < std::pair(stages_[a].memory_bytes, b);
    });
    std::vector<std::size_t> peers(peers_.size());
    std::iota(peers.begin(), peers.end(), 0U);
    std::sort(peers.begin(), peers.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(room(b), peers_[a].peer) < std::pair(room(a), peers_[b].peer);
    });
    auto peer = peers.begin();
    for (const std::size_t stage : stages) {
      for (std::uint32_t n = 0; n < need_[stage]; ++n, ++peer) {
        if (!fits(peers_[*peer], stages_[stage])) return too_small(stage);
        sit(*peer, stage);
      }
    }
    return {};
  }
  std::uint64_t room(std::size_t peer) const {
    return peers_[peer].memory_bytes == 0 ? UINT64_MAX : peers_[peer].memory_bytes;
  }
  Result<void> too_small(std::size_t stage) const {
    return fail(ErrorCode::kRefused,
                fmt::format("stage {} needs {} peers with {} bytes of memory each; too few peers "
                            "have that: add memory, or cut the model into more stages",
                            stage, need_[stage], stages_[stage].memory_bytes));
  }

  std::size_t least_served(std::size_t peer, bool only_needy) const {
    std::size_t best = kNowhere;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (!fits(peers_[peer], stages_[s]) || (only_needy && count_[s] >= need_[s])) continue;
      if (best == kNowhere || throughput(s) < throughput(best)) best = s;
    }
    return best;
  }

  void place_rest() {
    for (const std::size_t peer : fastest_first()) {
      if (seat_[peer] != kNowhere) continue;
      const std::size_t stage = least_served(peer, /*only_needy=*/false);
      if (stage != kNowhere) sit(peer, stage);
    }
  }

  // Only two stages change: the sorted throughputs rise lexicographically when the lower of the two
  // rises.
  bool better(std::size_t a, std::size_t b, double a_speed, double b_speed) const {
    const double after = std::min(a_speed / stages_[a].cost, b_speed / stages_[b].cost);
    return after > std::min(throughput(a), throughput(b)) * kGain;
  }

  bool try_move(std::size_t peer, std::size_t to) {
    const std::size_t from = seat_[peer];
    if (from == to || count_[from] <= need_[from] || !fits(peers_[peer], stages_[to])) return false;
    const double speed = peers_[peer].speed;
    if (!better(from, to, speed_[from] - speed, speed_[to] + speed)) return false;
    rise(peer);
    sit(peer, to);
    return true;
  }

  bool try_swap(std::size_t p, std::size_t q) {
    const std::size_t a = seat_[p];
    const std::size_t b = seat_[q];
    if (a == b || !fits(peers_[p], stages_[b]) || !fits(peers_[q], stages_[a])) return false;
    const double gain = peers_[q].speed - peers_[p].speed;
    if (!better(a, b, speed_[a] + gain, speed_[b] - gain)) return false;
    rise(p);
    rise(q);
    sit(p, b);
    sit(q, a);
    return true;
  }

  void improve() {
    for (int round = 0; round < kSeatingRoundsMax; ++round) {
      bool improved = false;
      for (std::size_t p = 0; p < peers_.size(); ++p) {
        if (seat_[p] == kNowhere) continue;
        for (std::size_t s = 0; s < stages_.size(); ++s) improved |= try_move(p, s);
        for (std::size_t q = p + 1; q < peers_.size(); ++q) {
          if (seat_[q] != kNowhere) improved |= try_swap(p, q);
        }
      }
      if (!improved) return;
    }
  }

  const std::vector<StageFacts>& stages_;
  const std::vector<PeerFacts>& peers_;
  std::vector<std::size_t> seat_;    // by peer: its stage
  std::vector<std::uint32_t> need_;  // by stage
  std::vector<std::uint32_t> count_;
  std::vector<double> speed_;  // of the peers seated there
};

}  // namespace

std::vector<double> stage_throughputs(const SwarmSnapshot& snapshot) {
  std::vector<double> speeds(snapshot.stages.size(), 0);
  for (const PeerFacts& peer : snapshot.peers) {
    if (!peer.stage) continue;
    SWARMLINE_CHECK(peer.stage->value < speeds.size());
    speeds[peer.stage->value] += peer.speed;
  }
  for (std::size_t s = 0; s < speeds.size(); ++s) speeds[s] /= snapshot.stages[s].cost;
  return speeds;
}

Result<std::vector<Seating>> seat_peers(const SwarmSnapshot& snapshot) {
  SWARMLINE_CHECK(!snapshot.stages.empty());
  return Seater(snapshot).seat();
}

Result<StageId> place_joiner(const SwarmSnapshot& snapshot, const PeerFacts& joiner) {
  const std::vector<double> throughputs = stage_throughputs(snapshot);
  std::vector<LocationTally> located(snapshot.stages.size());
  std::vector<StageStaff> staff;
  for (std::size_t s = 0; s < located.size(); ++s)
    staff.push_back({.throughput = throughputs[s], .located = &located[s]});
  for (const PeerFacts& peer : snapshot.peers) {
    if (!peer.stage) continue;
    ++staff[peer.stage->value].peers;
    located[peer.stage->value].add(peer.at);
  }
  return place_joiner(snapshot.stages, staff, joiner);
}

Result<StageId> place_joiner(std::span<const StageFacts> stages, std::span<const StageStaff> staff,
                             const PeerFacts& joiner) {
  SWARMLINE_CHECK(!stages.empty() && staff.size() == stages.size());
  constexpr int kEmpty = 0, kBelowTarget = 1, kServed = 2;
  const auto urgency = [&](std::size_t s) {
    if (staff[s].peers == 0) return kEmpty;
    return staff[s].peers < stages[s].target ? kBelowTarget : kServed;
  };
  std::vector<SeatOption> options;
  std::vector<const LocationTally*> located;
  int most_urgent = kServed;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    located.push_back(staff[s].located);
    if (!fits(joiner, stages[s])) continue;
    if (std::cmp_greater_equal(staff[s].peers, Limits::stage_peers_max)) continue;
    most_urgent = std::min(most_urgent, urgency(s));
    options.push_back({.stage = s, .throughput = staff[s].throughput, .holders = staff[s].located});
  }
  std::erase_if(options, [&](const SeatOption& seat) { return urgency(seat.stage) > most_urgent; });
  std::ranges::sort(options, {},
                    [](const SeatOption& seat) { return std::pair(seat.throughput, seat.stage); });
  if (!options.empty()) return id_of(most_redundant(options, joiner.at, located));
  if (std::ranges::all_of(staff, [](const StageStaff& stage) {
        return std::cmp_greater_equal(stage.peers, Limits::stage_peers_max);
      }))
    return fail(ErrorCode::kRefused,
                fmt::format("each stage has {} peers, as many as average together",
                            Limits::stage_peers_max));
  std::uint64_t least = UINT64_MAX;
  for (const StageFacts& stage : stages) least = std::min(least, stage.memory_bytes);
  return fail(ErrorCode::kRefused,
              fmt::format("the peer may use {:.1f} MiB of memory (peer.memory_bytes), and every "
                          "stage needs {:.1f} MiB at least",
                          mebibytes(joiner.memory_bytes), mebibytes(least)));
}

}  // namespace swarmline
