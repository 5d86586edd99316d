#include "balancer/plan_shadows.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "base/marks.h"

namespace swarmline {
namespace {

// With so few replicas one burst can take them all: two shadows.
constexpr std::uint32_t kFewReplicas = 4;
// Under "auto", so many more than wanted are kept: dropping one is easily regretted.
constexpr std::uint32_t kSpareShadows = 2;
// The last shadow of a stage with no more replicas is kept whatever it costs.
constexpr std::uint32_t kTooFewToDrop = 1;
constexpr double kAllRoom = std::numeric_limits<double>::infinity();  // of who serves nothing
constexpr const char* kEnough = "the stage has enough shadows";

class ShadowPlanner {
 public:
  ShadowPlanner(const PlanBoard& board, const PlanOptions& options)
      : board_(board),
        options_(options),
        slowest_(board.slowest()),
        hosted_(board.peers()),
        counts_(board.stages()),
        safe_(board.stages(), 0),
        holders_(board.stages()),
        load_(board.stages(), 0),
        changed_(board.peers(), false) {
    for (std::size_t p = 0; p < board.peers(); ++p) {
      if (board.seat(p) == kNowhere) continue;
      if (!board.peer(p).at_risk) ++safe_[board.seat(p)];
      holders_[board.seat(p)].add(board.peer(p).at);
    }
  }

  std::vector<ShadowChange> plan() {
    count_present_shadows();
    drop_shadows();
    const std::vector<std::size_t> order = most_endangered_first();
    std::uint32_t rounds = 0;
    for (const std::size_t s : order) rounds = std::max(rounds, wanted(s));
    for (std::uint32_t round = 0; round < rounds; ++round) {
      for (const std::size_t s : order) {
        if (counts_[s].total(is_auto()) > round || round >= wanted(s)) continue;
        if (changes_.size() >= options_.moves_max) return std::move(changes_);
        add_shadow(s);
      }
    }
    return std::move(changes_);
  }

 private:
  struct Hosted {
    std::size_t stage = 0;
    bool ready = false;
  };
  struct Counts {
    std::uint32_t spare = 0;        // on hosts that nobody waits for
    std::uint32_t spare_ready = 0;  // of those
    std::uint32_t critical = 0;     // on hosts of a slowest stage
    // Under "auto" a shadow on a critical host is on notice and does not count.
    std::uint32_t total(bool is_auto) const { return is_auto ? spare : spare + critical; }
  };

  bool is_auto() const { return !options_.shadows_per_stage; }
  std::uint32_t wanted(std::size_t stage) const {
    const std::uint32_t least = hangs_by_a_thread(stage) ? 1 : 0;
    if (!is_auto()) return std::max(least, *options_.shadows_per_stage);
    return board_.serving(stage) <= kFewReplicas ? 2 : 1;
  }
  // All who serve it may be taken soon: a shadow is worth what it costs, even where none was asked
  // for.
  bool hangs_by_a_thread(std::size_t stage) const {
    return board_.serving(stage) > 0 && safe_[stage] == 0;
  }
  // A shadow's load counts where its host serves a slowest stage.
  bool is_critical(std::size_t p) const {
    const std::size_t seat = board_.seat(p);
    return seat != kNowhere && board_.present_throughput(seat) <= slowest_ * (1 + kPlanRounding);
  }
  std::vector<std::size_t> most_endangered_first() const {
    std::vector<std::size_t> order(board_.stages());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, {}, [&](std::size_t s) {
      return std::tuple(safe_[s], board_.serving(s), board_.throughput(s), s);
    });
    return order;
  }

  // ---- What is there, moves done ----------------------------------------------------------------
  void count_present_shadows() {
    for (std::size_t p = 0; p < board_.peers(); ++p) {
      const PlanPeer& peer = board_.peer(p);
      const std::size_t seat = board_.seat(p);
      if (board_.is_moved(p) && seat != kNowhere) continue;
      for (const PlanShadow& shadow : peer.shadows)
        if (index_of(shadow.stage) != seat)
          hosted_[p].push_back({index_of(shadow.stage), shadow.ready});
      for (const Hosted& shadow : hosted_[p]) {
        charge(p, shadow.ready ? options_.shadow_load : options_.download_load);
        count(p, shadow, 1);
        holders_[shadow.stage].add(peer.at);
      }
    }
  }
  void count(std::size_t p, const Hosted& shadow, std::uint32_t change) {
    Counts& counts = counts_[shadow.stage];
    if (is_critical(p)) {
      counts.critical += change;
      return;
    }
    counts.spare += change;
    if (shadow.ready) counts.spare_ready += change;
  }
  void charge(std::size_t p, double share) {
    if (board_.seat(p) != kNowhere)
      load_[board_.seat(p)] += share * board_.share(p, board_.seat(p));
  }
  std::uint64_t hosted_bytes(std::size_t p) const {
    std::uint64_t bytes = 0;
    for (const Hosted& shadow : hosted_[p]) bytes += board_.stage(shadow.stage).state_bytes;
    return bytes;
  }
  bool has_memory(std::size_t p, std::uint64_t more_bytes) const {
    const std::uint64_t bound = board_.peer(p).shadow_memory_bytes;
    return bound == 0 || hosted_bytes(p) + more_bytes <= bound;
  }

  // ---- Too many, or in the way ------------------------------------------------------------------
  void drop_shadows() {
    for (std::size_t p = 0; p < board_.peers(); ++p) {
      for (std::size_t i = 0; i < hosted_[p].size();) {
        const char* reason = reason_to_drop(p, hosted_[p][i]);
        if (reason == nullptr || changes_.size() >= options_.moves_max) {
          ++i;
          continue;
        }
        SWARMLINE_MARK("balancer.shadow_dropped");
        const Hosted shadow = hosted_[p][i];
        count(p, shadow, -1U);
        holders_[shadow.stage].remove(board_.peer(p).at);
        hosted_[p].erase(hosted_[p].begin() + static_cast<std::ptrdiff_t>(i));
        changes_.push_back({.peer = board_.peer(p).peer,
                            .stage = stage_at(shadow.stage),
                            .add = false,
                            .reason = reason});
        changed_[p] = true;
      }
    }
  }
  const char* reason_to_drop(std::size_t p, const Hosted& shadow) const {
    const Counts& counts = counts_[shadow.stage];
    if (!has_memory(p, 0)) return "its host has no memory for it";
    if (!is_auto()) {
      const bool too_many = counts.total(false) > wanted(shadow.stage);
      return too_many && !is_its_second_zone(p, shadow.stage) ? kEnough : nullptr;
    }
    if (!is_critical(p)) {
      const bool too_many = counts.spare > wanted(shadow.stage) + kSpareShadows;
      return too_many && !is_its_second_zone(p, shadow.stage) ? kEnough : nullptr;
    }
    if (hangs_by_a_thread(shadow.stage)) return nullptr;
    const bool last = shadow.ready && counts.spare_ready == 0 && counts.critical == 1;
    if (last && board_.serving(shadow.stage) <= kTooFewToDrop) {
      SWARMLINE_MARK("balancer.last_shadow_kept");
      return nullptr;
    }
    return "its host serves a slowest stage";
  }

  // Of several shadows another one goes.
  bool is_its_second_zone(std::size_t p, std::size_t stage) const {
    const LocationTally& holders = holders_[stage];
    return wanted(stage) > 0 && holders.redundancy() == Redundancy::kTwoZones &&
           holders.redundancy_after({&board_.peer(p).at, 1}, {}) != Redundancy::kTwoZones;
  }

  // ---- Too few ----------------------------------------------------------------------------------
  // In another zone than all who hold the stage's state, else on another host, where that slows
  // the swarm down by no more than a bound.
  std::size_t best_host(std::size_t stage) const {
    const std::size_t fastest = fastest_host(stage, Apart::kSameHost, -kAllRoom);
    if (fastest == kNowhere) return fastest;
    const bool has_to_pay = is_auto() && !hangs_by_a_thread(stage);
    const double least = has_to_pay ? slowest_ * (1 - options_.shadow_loss_max)
                                    : std::min(room_while_it_downloads(fastest), slowest_) *
                                          (1 - kRedundancyCostMax);
    for (const Apart apart : {Apart::kOtherZone, Apart::kOtherHost}) {
      if (holders_[stage].apart(board_.peer(fastest).at) >= apart) return fastest;
      if (const std::size_t p = fastest_host(stage, apart, least); p != kNowhere) return p;
    }
    return fastest;
  }
  std::size_t fastest_host(std::size_t stage, Apart apart, double room_min) const {
    std::size_t best = kNowhere;
    double best_room = 0;
    for (std::size_t p = 0; p < board_.peers(); ++p) {
      if (!can_host(p, stage) || holders_[stage].apart(board_.peer(p).at) < apart) continue;
      const double room = room_while_it_downloads(p);
      if (room < room_min) continue;
      const bool fewer = best != kNowhere && hosted_[p].size() < hosted_[best].size();
      const bool as_good = room >= best_room * (1 - kPlanRounding);
      if (best == kNowhere || room > best_room * (1 + kPlanRounding) || (as_good && fewer)) {
        best = p;
        best_room = room;
      }
    }
    return best;
  }
  void add_shadow(std::size_t stage) {
    const std::size_t best = best_host(stage);
    if (best == kNowhere) return;
    if (is_auto() && !hangs_by_a_thread(stage) &&
        room_while_it_downloads(best) < slowest_ * (1 - options_.shadow_loss_max)) {
      SWARMLINE_MARK("balancer.shadow_costs_too_much");
      return;
    }
    SWARMLINE_MARK("balancer.shadow_added");
    charge(best, options_.download_load);
    hosted_[best].push_back({stage, false});
    changed_[best] = true;
    counts_[stage].spare += 1;
    holders_[stage].add(board_.peer(best).at);
    changes_.push_back({.peer = board_.peer(best).peer,
                        .stage = stage_at(stage),
                        .add = true,
                        .reason = fmt::format("served by {}: its state must outlive them",
                                              board_.serving(stage))});
  }
  // What is left of the host's stage meanwhile.
  double room_while_it_downloads(std::size_t p) const {
    const std::size_t seat = board_.seat(p);
    if (seat == kNowhere) return kAllRoom;
    return board_.present_throughput(seat) - load_[seat] -
           options_.download_load * board_.share(p, seat);
  }
  bool can_host(std::size_t p, std::size_t stage) const {
    const std::size_t seat = board_.seat(p);
    if (board_.is_barred(p, stage)) return false;
    if (changed_[p] || seat == stage || board_.peer(p).at_risk) return false;
    if (is_auto() && is_critical(p) && !hangs_by_a_thread(stage)) return false;
    if (board_.peer(p).arriving || (board_.is_moved(p) && !board_.is_retired(p))) return false;
    // Its stage's only peer has no time to download.
    if (seat != kNowhere && board_.present(seat) == 1) return false;
    if (hosted_[p].size() >= options_.shadows_per_peer_max) return false;
    if (!std::ranges::all_of(hosted_[p], &Hosted::ready)) return false;
    return !board_.follows(p, stage) && has_memory(p, board_.stage(stage).state_bytes);
  }

  const PlanBoard& board_;
  const PlanOptions& options_;
  const double slowest_;
  std::vector<std::vector<Hosted>> hosted_;  // by peer
  std::vector<Counts> counts_;               // by stage
  std::vector<std::uint32_t> safe_;          // by stage: who serve it and are not at risk
  std::vector<LocationTally> holders_;       // by stage: who serve or follow it, ready or not
  std::vector<double> load_;                 // of shadows on a stage's throughput
  std::vector<bool> changed_;                // by peer: one change a round
  std::vector<ShadowChange> changes_;
};

}  // namespace

std::vector<ShadowChange> plan_shadows(const PlanBoard& board, const PlanOptions& options) {
  return ShadowPlanner(board, options).plan();
}

}  // namespace swarmline
