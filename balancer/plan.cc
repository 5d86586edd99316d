#include "balancer/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "balancer/plan_board.h"
#include "balancer/plan_shadows.h"
#include "balancer/plan_spread.h"
#include "balancer/seating.h"
#include "base/check.h"
#include "base/marks.h"

namespace swarmline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Measured speeds are off by some percents from step to step: nobody moves for less.
constexpr double kRunHysteresis = 0.1;
constexpr double kNobodyMoves = 1e9;  // hysteresis

// One peer to a slowest stage; or two that change places, `swapped` being who leaves that stage.
struct Step {
  std::size_t peer = kNowhere;
  std::size_t to = kNowhere;
  std::size_t swapped = kNowhere;
  double gain = 0;  // relative, of the slowest stage; of those that tie: of the first to rise
};

class Planner {
 public:
  Planner(const PlanSnapshot& snapshot, const PlanOptions& options)
      : options_(options), board_(snapshot, options), move_of_(snapshot.peers.size(), kNowhere) {
    plan_.throughput_before = board_.present_slowest();
  }

  SwarmPlan plan() {
    retire_slow_peers();
    fill_empty_stages();
    seat_newcomers();
    do {
      move_instantly();
    } while (move_a_group());
    plan_.shadows = plan_shadows(board_, options_);
    if (spread_stages()) plan_.shadows = plan_shadows(board_, options_);
    plan_.throughput_after = board_.slowest();
    return std::move(plan_);
  }

 private:
  bool room_for_moves() const { return moves_ < options_.moves_max; }
  bool is_slow(std::size_t p) const {
    return board_.peer(p).slow_seconds >= options_.fail_slow_seconds;
  }

  // A newcomer that is already in the plan gets another stage there.
  void move(std::size_t p, std::size_t to, std::string reason) {
    const PlanPeer& peer = board_.peer(p);
    if (move_of_[p] == kNowhere) {
      move_of_[p] = plan_.moves.size();
      plan_.moves.emplace_back();
      moves_ += peer.stage ? 1 : 0;
    }
    const bool instant = board_.holds(p, to);
    plan_.moves[move_of_[p]] = {.peer = peer.peer,
                                .kind = instant ? MoveKind::kInstant : MoveKind::kDownload,
                                .from = peer.stage,
                                .to = stage_at(to),
                                .seconds = instant ? 0 : board_.download_seconds(p, to),
                                .reason = std::move(reason)};
    board_.move(p, to);
  }

  // ---- Who is too slow --------------------------------------------------------------------------
  void retire_slow_peers() {
    for (std::size_t p = 0; p < board_.peers() && room_for_moves(); ++p) {
      const PlanPeer& peer = board_.peer(p);
      if (!is_slow(p) || !peer.stage || !board_.can_leave(p)) continue;
      SWARMLINE_MARK("balancer.slow_peer_retired");
      move_of_[p] = plan_.moves.size();
      ++moves_;
      plan_.moves.push_back(
          {.peer = peer.peer,
           .kind = MoveKind::kRetire,
           .from = peer.stage,
           .to = *peer.stage,
           .seconds = 0,
           .reason = fmt::format("under {:.0f} % of its stage mates' speed for {:.0f} s",
                                 options_.fail_slow_share * 100, peer.slow_seconds)});
      board_.retire(p);
    }
  }

  // ---- Emptied stages ---------------------------------------------------------------------------
  // Where somebody is on the way already, only who holds the state is faster.
  void fill_empty_stages() {
    for (std::size_t s = 0; s < board_.stages() && room_for_moves(); ++s) {
      if (board_.present(s) > 0) continue;
      const std::size_t p = best_filler(s, /*only_holders=*/board_.serving(s) > 0);
      if (p == kNowhere) continue;
      SWARMLINE_MARK("balancer.empty_stage_filled");
      move(p, s, fmt::format("stage {} has nobody", s));
    }
  }
  // Who knows the stage, then who is missed least, then who downloads fastest, then who is not a
  // stage's second zone.
  std::size_t best_filler(std::size_t stage, bool only_holders) const {
    const auto worth = [&](std::size_t p) {
      const std::size_t from = board_.seat(p);
      const double left =
          from == kNowhere ? kInfinity : board_.throughput(from) - board_.share(p, from);
      const double there = board_.share(p, stage);
      const PlanBoard::Going going{.peer = p, .to = stage};
      return std::tuple(board_.holds(p, stage), std::min(left, there), std::max(left, there),
                        -board_.download_seconds(p, stage),
                        !board_.weakens({&going, 1}, Redundancy::kTwoZones));
    };
    std::size_t best = kNowhere;
    for (std::size_t p = 0; p < board_.peers(); ++p) {
      if (!board_.can_leave(p) || !board_.fits(p, stage)) continue;
      if (only_holders && !board_.holds(p, stage)) continue;
      if (best == kNowhere || worth(p) > worth(best)) best = p;
    }
    return best;
  }

  // ---- Newcomers --------------------------------------------------------------------------------
  // Fastest first. One that was retired comes back when somebody has measured it anew.
  void seat_newcomers() {
    std::vector<std::size_t> order(board_.peers());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, {}, [&](std::size_t p) { return std::pair(-board_.speed(p), p); });
    for (const std::size_t p : order) {
      if (board_.seat(p) != kNowhere || board_.is_moved(p) || is_slow(p)) continue;
      const std::size_t stage = stage_for(p);
      if (stage == kNowhere) continue;
      SWARMLINE_MARK("balancer.newcomer_seated");
      if (stage == weakest_stage(p)) {
        move(p, stage, fmt::format("new here; stage {} had the lowest throughput", stage));
        continue;
      }
      SWARMLINE_MARK("balancer.seated_apart");
      move(p, stage,
           fmt::format("new here; those who hold stage {} were too near each other", stage));
    }
  }
  std::size_t stage_for(std::size_t p) const {
    const std::size_t weakest = weakest_stage(p);
    // Who could serve at once downloads nothing for the sake of a second zone.
    if (weakest == kNowhere || board_.holds(p, weakest) || board_.serving(weakest) == 0)
      return weakest;
    std::vector<SeatOption> options;
    std::vector<const LocationTally*> holders;
    for (std::size_t s = 0; s < board_.stages(); ++s) {
      holders.push_back(&board_.holders(s));
      if (board_.fits(p, s))
        options.push_back(
            {.stage = s, .throughput = board_.throughput(s), .holders = &board_.holders(s)});
    }
    std::ranges::sort(options, {}, [&](const SeatOption& seat) {
      return std::tuple(seat.stage != weakest, seat.throughput, seat.stage);
    });
    return most_redundant(options, board_.peer(p).at, holders);
  }
  // Among equals one whose state the peer holds.
  std::size_t weakest_stage(std::size_t p) const {
    std::size_t best = kNowhere;
    for (std::size_t s = 0; s < board_.stages(); ++s) {
      if (!board_.fits(p, s)) continue;
      const double here = board_.throughput(s);
      const double there = best == kNowhere ? kInfinity : board_.throughput(best);
      const bool equal = best != kNowhere && std::abs(here - there) <= kPlanRounding * there;
      if (equal ? board_.holds(p, s) && !board_.holds(p, best) : here < there) best = s;
    }
    return best;
  }

  // ---- Moves between stages ---------------------------------------------------------------------
  void move_instantly() {
    while (room_for_moves()) {
      const Step step = best_step(/*only_instant=*/true);
      if (step.peer == kNowhere || step.gain <= options_.hysteresis) return;
      SWARMLINE_MARK("balancer.instant_move");
      take(step);
    }
  }

  // Moves that lift several slowest stages pay only together: a group grows until it pays, and is
  // taken whole or not at all. True: it was taken.
  bool move_a_group() {
    const PlanBoard::Mark mark = board_.mark();
    const std::vector<PlanMove> kept = plan_.moves;
    const std::vector<std::size_t> kept_places = move_of_;
    const std::uint32_t kept_moves = moves_;
    const double before = board_.slowest();
    const double present = board_.present_slowest();
    std::vector<std::size_t> group;
    double seconds = 0;
    // Newcomers that change places are no moves: the group has a bound of its own.
    while (room_for_moves() && group.size() < 2 * std::size_t{options_.moves_max}) {
      const Step step = best_step(/*only_instant=*/false);
      if (step.peer == kNowhere || step.gain <= kPlanRounding) break;
      take(step);
      for (const std::size_t p : {step.peer, step.swapped}) {
        if (p == kNowhere) continue;
        group.push_back(p);
        seconds = std::max(seconds, plan_.moves[move_of_[p]].seconds);
      }
      const double gained = board_.slowest() - before;
      const double lost = std::max(0.0, present - board_.present_slowest());
      const double value = gained * (options_.horizon_seconds - seconds) - lost * seconds;
      if (gained <= kPlanRounding * before) continue;
      if (value <= options_.hysteresis * before * options_.horizon_seconds) continue;
      SWARMLINE_MARK("balancer.group_moved");
      for (const std::size_t p : group) {
        plan_.moves[move_of_[p]].reason += gain_in_words(before, seconds);
      }
      return true;
    }
    if (!group.empty()) SWARMLINE_MARK("balancer.group_does_not_pay");
    board_.go_back(mark);
    plan_.moves = kept;
    move_of_ = kept_places;
    moves_ = kept_moves;
    return false;
  }
  std::string gain_in_words(double before, double seconds) const {
    if (before <= 0) return {};
    return fmt::format("; the swarm gains {:.1f} % after {:.0f} s",
                       (board_.slowest() / before - 1) * 100, seconds);
  }

  void take(const Step& step) {
    const std::size_t from = board_.seat(step.peer);
    if (step.swapped == kNowhere) {
      return move(step.peer, step.to,
                  fmt::format("stage {} can spare it, stage {} is slower", from, step.to));
    }
    SWARMLINE_MARK("balancer.places_changed");
    move(step.peer, step.to,
         fmt::format("changes places with the slower peer {}",
                     board_.peer(step.swapped).peer.value));
    move(step.swapped, from,
         fmt::format("changes places with the faster peer {}", board_.peer(step.peer).peer.value));
  }
  bool may_move(std::size_t p) const {
    if (board_.seat(p) == kNowhere) return false;
    if (board_.is_newcomer(p)) return !board_.is_here(p);
    return board_.can_leave(p);
  }

  // To the slowest stages only: what helps no slowest stage helps nobody.
  Step best_step(bool only_instant) const {
    Step best;
    const double slowest = board_.slowest();
    std::vector<std::size_t> low, movable;
    for (std::size_t s = 0; s < board_.stages(); ++s) {
      if (board_.throughput(s) <= slowest * (1 + kPlanRounding)) low.push_back(s);
    }
    for (std::size_t p = 0; p < board_.peers(); ++p) {
      if (may_move(p)) movable.push_back(p);
    }
    for (const std::size_t to : low) {
      for (const std::size_t p : movable) {
        if (board_.seat(p) == to || !board_.fits(p, to)) continue;
        if (only_instant && !board_.holds(p, to)) continue;
        consider({.peer = p, .to = to}, slowest, best);
      }
    }
    if (board_.peers() <= kPlanSwapPeersMax) best_swap(only_instant, low, movable, slowest, best);
    return best;
  }
  void best_swap(bool only_instant, const std::vector<std::size_t>& low,
                 const std::vector<std::size_t>& movable, double slowest, Step& best) const {
    for (const std::size_t q : movable) {
      const std::size_t to = board_.seat(q);
      if (std::ranges::find(low, to) == low.end()) continue;
      for (const std::size_t p : movable) {
        const std::size_t from = board_.seat(p);
        if (from == to || board_.speed(p) <= board_.speed(q)) continue;
        if (!board_.fits(p, to) || !board_.fits(q, from)) continue;
        if (only_instant && !(board_.holds(p, to) && board_.holds(q, from))) continue;
        consider({.peer = p, .to = to, .swapped = q}, slowest, best);
      }
    }
  }
  // The gain is that of the sorted throughputs at the first place where they differ.
  void consider(Step step, double slowest, Step& best) const {
    const std::size_t from = board_.seat(step.peer);
    double left = board_.throughput(from) - board_.share(step.peer, from);
    double helped = board_.throughput(step.to) + board_.share(step.peer, step.to);
    if (step.swapped != kNowhere) {
      left += board_.share(step.swapped, from);
      helped -= board_.share(step.swapped, step.to);
    }
    const double floor = slowest * (1 + kPlanRounding);
    if (left <= floor || helped <= floor) return;
    double after = std::min(left, helped);
    for (std::size_t s = 0; s < board_.stages(); ++s) {
      if (s == from || s == step.to || board_.throughput(s) <= floor) continue;
      after = std::min(after, board_.throughput(s));
    }
    step.gain = slowest > 0 ? after / slowest - 1 : kInfinity;
    if (step.gain <= best.gain + kPlanRounding) return;
    if (step.gain <= options_.redundancy_worth && weakens(step)) {
      SWARMLINE_MARK("balancer.move_would_weaken");
      return;
    }
    best = step;
  }
  bool weakens(const Step& step) const {
    const std::array<PlanBoard::Going, 2> going = {
        PlanBoard::Going{.peer = step.peer, .to = step.to},
        PlanBoard::Going{.peer = step.swapped, .to = board_.seat(step.peer)}};
    return board_.weakens(std::span(going).first(step.swapped == kNowhere ? 1 : 2));
  }

  // ---- Stages in one zone -----------------------------------------------------------------------
  // True: somebody moves.
  bool spread_stages() {
    bool moved = false;
    for (std::size_t s = 0; s < board_.stages() && options_.spread_cost_max > 0; ++s) {
      if (!room_for_moves() || has_shadow_apart(s)) continue;
      const auto step = cheapest_spread(board_, s, options_);
      if (!step) continue;
      SWARMLINE_MARK("balancer.stage_spread");
      const std::size_t from = board_.seat(step->peer);
      const std::string why = fmt::format("all who hold stage {} are in zone {}", s,
                                          board_.holders(s).zones().begin()->first);
      move(step->peer, s, why);
      if (step->swapped != kNowhere)
        move(
            step->swapped, from,
            why + fmt::format("; changes places with peer {}", board_.peer(step->peer).peer.value));
      moved = true;
    }
    return moved;
  }
  // Or will have, by this plan.
  bool has_shadow_apart(std::size_t stage) const {
    for (std::size_t p = 0; p < board_.peers(); ++p) {
      if (board_.holders(stage).apart(board_.peer(p).at) != Apart::kOtherZone) continue;
      bool follows = board_.follows(p, stage) && !board_.is_moved(p);
      for (const ShadowChange& change : plan_.shadows)
        if (change.peer == board_.peer(p).peer && index_of(change.stage) == stage)
          follows = change.add;
      if (follows) return true;
    }
    return false;
  }

  const PlanOptions& options_;
  PlanBoard board_;
  std::vector<std::size_t> move_of_;  // by peer: place in plan_.moves
  std::uint32_t moves_ = 0;           // of those who served
  SwarmPlan plan_;
};

}  // namespace

PlanOptions run_plan_options(bool moves, std::optional<std::uint32_t> shadows) {
  PlanOptions options{.hysteresis = moves ? kRunHysteresis : kNobodyMoves};
  if (!moves) options.spread_cost_max = 0;
  options.shadows_per_stage = shadows;
  return options;
}

SwarmPlan plan_swarm(const PlanSnapshot& snapshot, const PlanOptions& options) {
  return Planner(snapshot, options).plan();
}

double best_throughput(const PlanSnapshot& snapshot) {
  if (snapshot.stages.empty() || snapshot.peers.size() < snapshot.stages.size()) return 0;
  SwarmSnapshot free;
  for (const PlanStage& stage : snapshot.stages) {
    free.stages.push_back({.cost = stage.cost, .memory_bytes = stage.memory_bytes});
  }
  for (const PlanPeer& peer : snapshot.peers) {
    free.peers.push_back(
        {.peer = peer.peer, .speed = peer.speed, .memory_bytes = peer.memory_bytes, .stage = {}});
  }
  const auto seating = seat_peers(free);
  if (!seating) return 0;
  for (const Seating& seat : *seating) {
    for (PeerFacts& peer : free.peers) {
      if (peer.peer == seat.peer) peer.stage = seat.stage;
    }
  }
  return std::ranges::min(stage_throughputs(free));
}

}  // namespace swarmline
