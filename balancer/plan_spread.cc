#include "balancer/plan_spread.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "base/marks.h"

namespace swarmline {
namespace {

// A stage's throughput, when all have arrived and while they are on the way.
struct Throughput {
  double last = 0;
  double present = 0;
};

class SpreadSearch {
 public:
  SpreadSearch(const PlanBoard& board, std::size_t stage, const PlanOptions& options)
      : board_(board),
        stage_(stage),
        options_(options),
        slowest_(board.slowest()),
        present_slowest_(board.present_slowest()) {}

  std::optional<SpreadStep> cheapest() {
    const LocationTally& holders = board_.holders(stage_);
    if (slowest_ <= 0 || holders.zones().size() != 1) return std::nullopt;
    const std::string& zone = holders.zones().begin()->first;
    std::vector<std::size_t> leaving = {kNowhere};
    for (std::size_t q = 0; q < board_.peers() && board_.peers() <= kPlanSwapPeersMax; ++q)
      if (board_.seat(q) == stage_ && may_move(q)) leaving.push_back(q);
    for (std::size_t p = 0; p < board_.peers(); ++p) {
      const Location& at = board_.peer(p).at;
      if (at.zone.empty() || at.zone == zone || board_.seat(p) == stage_) continue;
      if (!may_move(p) || !board_.fits(p, stage_)) continue;
      for (const std::size_t q : leaving) consider(p, q);
    }
    return best_;
  }

 private:
  // Newcomers are where they help most.
  bool may_move(std::size_t p) const {
    return board_.seat(p) != kNowhere && !board_.is_newcomer(p) && board_.can_leave(p);
  }

  void consider(std::size_t p, std::size_t q) {
    const std::size_t from = board_.seat(p);
    if (q != kNowhere && !board_.fits(q, from)) return;
    const double seconds = std::max(download_seconds(p, stage_), download_seconds(q, from));
    const double cost = cost_of(p, q, seconds);
    if (cost > options_.spread_cost_max) return;
    if (best_ && cost >= best_->cost * (1 - kPlanRounding)) return;
    if (!spreads(p, q, seconds)) return;
    best_ = SpreadStep{.peer = p, .swapped = q, .cost = cost};
  }
  double download_seconds(std::size_t p, std::size_t to) const {
    return p == kNowhere || board_.holds(p, to) ? 0 : board_.download_seconds(p, to);
  }

  Throughput after(std::size_t stage, std::size_t gone, std::size_t come) const {
    Throughput result{.last = board_.throughput(stage),
                      .present = board_.present_throughput(stage)};
    if (gone != kNowhere) {
      result.last -= board_.share(gone, stage);
      result.present -= board_.is_here(gone) ? board_.share(gone, stage) : 0;
    }
    if (come != kNowhere) {
      result.last += board_.share(come, stage);
      result.present += board_.at_once(come, stage) ? board_.share(come, stage) : 0;
    }
    return result;
  }
  double cost_of(std::size_t p, std::size_t q, double seconds) const {
    const std::size_t from = board_.seat(p);
    const Throughput there = after(stage_, q, p), left = after(from, p, q);
    double last = std::min(there.last, left.last), present = std::min(there.present, left.present);
    for (std::size_t s = 0; s < board_.stages(); ++s) {
      if (s == from || s == stage_) continue;
      last = std::min(last, board_.throughput(s));
      present = std::min(present, board_.present_throughput(s));
    }
    if (last <= 0) return std::numeric_limits<double>::infinity();
    const double lost = std::max(0.0, slowest_ - last) * options_.horizon_seconds;
    const double meanwhile = std::max(0.0, present_slowest_ - present) * seconds;
    return (lost + meanwhile) / (slowest_ * options_.horizon_seconds);
  }

  bool spreads(std::size_t p, std::size_t q, double seconds) const {
    const Location& come = board_.peer(p).at;
    const std::span<const Location> gone =
        q == kNowhere ? std::span<const Location>() : std::span(&board_.peer(q).at, 1);
    if (board_.holders(stage_).redundancy_after(gone, {&come, 1}) != Redundancy::kTwoZones)
      return false;
    const std::array<PlanBoard::Going, 2> going = {
        PlanBoard::Going{.peer = p, .to = stage_},
        PlanBoard::Going{.peer = q, .to = board_.seat(p)}};
    const auto moves = std::span(going).first(q == kNowhere ? 1 : 2);
    if (board_.weakens_at_last(moves)) return false;
    if (seconds <= options_.spread_cost_max * options_.horizon_seconds) return true;
    if (!board_.weakens(moves)) return true;
    SWARMLINE_MARK("balancer.spread_would_weaken");
    return false;
  }

  const PlanBoard& board_;
  const std::size_t stage_;
  const PlanOptions& options_;
  const double slowest_, present_slowest_;
  std::optional<SpreadStep> best_;
};

}  // namespace

std::optional<SpreadStep> cheapest_spread(const PlanBoard& board, std::size_t stage,
                                          const PlanOptions& options) {
  return SpreadSearch(board, stage, options).cheapest();
}

}  // namespace swarmline
