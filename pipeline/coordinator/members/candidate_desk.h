// Whom of the next stage each sender knows: everybody while that is few, else kKnown. Receivers are
// known to senders in proportion to their speeds, and whoever comes or goes changes what few know.
// Pure.
//   Bounds: update() is O(senders x receivers) where much changes, and linear where nothing does.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/limits.h"

namespace swarmline {

class CandidateDesk {
 public:
  static constexpr std::size_t kKnown = Limits::next_candidates_max;

  // `receivers`: with their speeds, > 0. Returns the senders that know others than before.
  std::set<Seat> update(StageId stage_of_senders, const std::vector<Seat>& senders,
                        const std::map<Seat, double>& receivers);
  const std::set<Seat>& known_to(const Seat& sender) const;

 private:
  using Known = std::map<Seat, std::set<Seat>>;  // by sender
  std::map<StageId, Known> stages_;
};

}  // namespace swarmline
