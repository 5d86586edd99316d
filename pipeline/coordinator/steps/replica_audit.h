// Replicas must hold the same bits: after each step every member of a stage says the digest of what
// it holds, and so does whoever follows the stage and would like a seat.
//   What:    collects digests by (stage, version) and says who differs, who can't be told from
//            whom, and which followers hold what their mates hold.
//   Thread:  control thread. Pure.
//   Bounds:  the last kVersionsKept versions of each stage; one digest a seat.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "pipeline/coordinator/run/run_observer.h"

namespace swarmline {

class ReplicaAudit final : public RunObserver {
 public:
  static constexpr std::uint64_t kVersionsKept = 3;
  using Votes = std::map<std::uint64_t, std::vector<Seat>>;  // by digest

  struct Verdict {
    enum class Kind : std::uint8_t { kSame, kUnknown, kMinority, kTie };
    Kind kind = Kind::kSame;  // kUnknown: they differ, and members that have not said may tell
    std::vector<Seat> wrong;  // of kMinority
    Seat most;                // of kMinority: one of the others
    Votes votes;              // of a tie
    // Of a tie: one of most, and one of others.
    Seat one, other;
  };

  void say(const Seat& seat, std::uint64_t version, std::uint64_t digest);
  void forget(const Seat& seat);
  // What has been said since the last time this was asked, and has to be compared.
  std::set<std::pair<StageId, std::uint64_t>> take_unsettled() {
    return std::exchange(unsettled_, {});
  }
  bool is_due() const { return !unsettled_.empty(); }
  void look_again(StageId stage, std::uint64_t version) { unsettled_.insert({stage, version}); }
  // What the stage's members hold after `version`; `members`: how many it has.
  Verdict compare(StageId stage, std::uint64_t version, std::size_t members) const;
  // Somebody of the stage has said what it holds of `version`.
  bool knows(StageId stage, std::uint64_t version) const;
  std::size_t said(StageId stage, std::uint64_t version) const;  // how many of them have
  bool has_said(StageId stage, std::uint64_t version, std::uint64_t digest) const;

  // A follower holds `version` with these bits.
  void follower_ready(const Seat& seat, std::uint64_t version, std::uint64_t digest);
  void take_follower(const Seat& seat) { followers_.erase(seat); }
  struct Follower {
    Seat seat;
    std::uint64_t digest = 0;
    bool same = false;  // as a mate's
  };
  // Those at the stage that hold `version`, where a mate has said what it should be.
  std::vector<Follower> followers_of(StageId stage, std::uint64_t version) const;
  // A follower that holds `version`, where nobody has said that its bits are others.
  std::optional<Follower> heir(StageId stage, std::uint64_t version) const;
  bool has_followers() const { return !followers_.empty(); }

  void on_seat_lost(const SeatLoss& lost) override { forget(lost.seat); }
  void on_rollback() override;

  void check_invariants() const;

 private:
  static bool all_agree(const std::map<Seat, std::uint64_t>& digests);

  std::map<std::pair<StageId, std::uint64_t>, std::map<Seat, std::uint64_t>> said_;
  std::map<Seat, std::pair<std::uint64_t, std::uint64_t>> followers_;  // version, digest
  std::set<std::pair<StageId, std::uint64_t>> unsettled_;
};

}  // namespace swarmline
