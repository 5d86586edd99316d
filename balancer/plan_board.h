// The planner's working copy of a snapshot: who sits where while a plan is being made.
//   Speeds are rounded to a grid, so that sums are exact and do not depend on the order of moves.
//   Thread: any, plain values. A call costs O(1), O(stages) where it looks at all of them.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "balancer/plan.h"

namespace swarmline {

inline constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();
// Differences below this share are rounding.
inline constexpr double kPlanRounding = 1e-9;

inline std::size_t index_of(StageId stage) {
  return stage.value;
}
inline StageId stage_at(std::size_t index) {
  return StageId(static_cast<std::uint16_t>(index));
}

class PlanBoard {
 public:
  PlanBoard(const PlanSnapshot& snapshot, const PlanOptions& options);

  std::size_t stages() const { return stages_.size(); }
  std::size_t peers() const { return peers_.size(); }
  const PlanPeer& peer(std::size_t p) const { return peers_[p]; }
  const PlanStage& stage(std::size_t s) const { return stages_[s]; }

  std::size_t seat(std::size_t p) const { return seats_[p].stage; }
  bool is_here(std::size_t p) const { return seats_[p].here; }
  // Present: here. Serving: here or on its way.
  std::uint32_t present(std::size_t s) const { return sums_[s].present; }
  std::uint32_t serving(std::size_t s) const { return sums_[s].serving; }
  double throughput(std::size_t s) const { return sums_[s].speed / stages_[s].cost; }
  double present_throughput(std::size_t s) const {
    return sums_[s].present_speed / stages_[s].cost;
  }
  // What a peer adds to a stage.
  double share(std::size_t p, std::size_t s) const { return speeds_[p] / stages_[s].cost; }
  double speed(std::size_t p) const { return speeds_[p]; }
  // Who holds a stage's state when everybody has arrived: those who serve it and ready shadows.
  const LocationTally& holders(std::size_t s) const { return sums_[s].holders; }
  // If they all move: some stage that had at least `least` has less redundancy then, or already
  // while they are on their way. Never where all peers are on one host, with which all is lost.
  struct Going {
    std::size_t peer = kNowhere;
    std::size_t to = kNowhere;
  };
  bool weakens(std::span<const Going> moves, Redundancy least = Redundancy::kSingle) const;
  // The same of when everybody has arrived, alone.
  bool weakens_at_last(std::span<const Going> moves) const {
    return !on_one_host_ && weakens(moves, Redundancy::kSingle, /*on_their_way=*/false);
  }
  double slowest() const;
  double present_slowest() const;

  bool holds(std::size_t p, std::size_t s) const;    // as a ready shadow
  bool follows(std::size_t p, std::size_t s) const;  // as a shadow, ready or not
  bool fits(std::size_t p, std::size_t s) const;     // by memory, there is room, it is not barred
  bool is_barred(std::size_t p, std::size_t s) const {
    return peers_[p].barred && peers_[p].barred->value == s;
  }
  double download_seconds(std::size_t p, std::size_t s) const;
  // Serves the moment it moves.
  bool at_once(std::size_t p, std::size_t s) const {
    return holds(p, s) || !stages_[s].state_bytes;
  }

  bool is_moved(std::size_t p) const { return seats_[p].moved; }
  bool is_retired(std::size_t p) const { return seats_[p].moved && seats_[p].stage == kNowhere; }
  // Not on its way, not moved already, and somebody else is present where it serves.
  bool can_leave(std::size_t p) const;
  // A newcomer that this plan seats: may still be seated elsewhere.
  bool is_newcomer(std::size_t p) const { return seats_[p].moved && !peers_[p].stage; }

  void move(std::size_t p, std::size_t to);
  void retire(std::size_t p);

  struct Mark;
  Mark mark() const;
  void go_back(const Mark& mark);

 private:
  struct Sums {
    double speed = 0;
    double present_speed = 0;
    std::uint32_t serving = 0;
    std::uint32_t present = 0;
    LocationTally holders;
    LocationTally present_holders;
  };
  struct Seat {
    std::size_t stage = kNowhere;
    bool here = false;   // serves now
    bool moved = false;  // by this plan
  };
  void sit(std::size_t p, std::size_t stage, bool here);
  void rise(std::size_t p);
  void leave_shadows(std::size_t p);
  bool weakens(std::span<const Going> moves, Redundancy least, bool on_their_way) const;

  const std::vector<PlanStage>& stages_;
  const std::vector<PlanPeer>& peers_;
  double link_bits_per_second_;
  bool on_one_host_ = false;
  std::vector<double> speeds_;
  std::vector<Seat> seats_;
  std::vector<Sums> sums_;
};

// A state to go back to.
struct PlanBoard::Mark {
  std::vector<Seat> seats;
  std::vector<Sums> sums;
};

inline PlanBoard::Mark PlanBoard::mark() const {
  return {seats_, sums_};
}
inline void PlanBoard::go_back(const Mark& mark) {
  seats_ = mark.seats;
  sums_ = mark.sums;
}

}  // namespace swarmline
