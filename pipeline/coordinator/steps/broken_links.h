// Links between members that break while they average, and what that says of who is at fault.
//   Rule:    of two that can't reach each other again and again, it is the one whose links to more
//            others break, too, the coordinator's to it among them; of two like that, the later
//            one. Where links break that have no end in common, it is what lies between them all.
//   Time:    a break counts for knobs().mesh_patience; many links, for as long from the first on.
//   Thread:  pure.
//   Bounds:  those of one step: a pair of peers each.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/ids.h"
#include "base/units.h"

namespace swarmline {

inline constexpr PeerId kCoordinatorEnd{0};  // no peer has that number

class BrokenLinks {
 public:
  // One of the two says so, and that it is not its own end.
  void broke(PeerId one, PeerId other, Instant now);
  // It ended an attempt to average: so many so far.
  std::uint32_t ended_an_attempt(PeerId one, PeerId other);
  // For a while; two links that are both gone for good look the same.
  bool others_break_too(PeerId one, PeerId other, Instant now) const;
  PeerId at_fault(PeerId one, PeerId other, Instant now) const;
  void clear();
  bool empty() const { return attempts_.empty() && breaks_.empty(); }

 private:
  using Pair = std::pair<PeerId, PeerId>;
  static Pair pair_of(PeerId one, PeerId other) { return std::minmax(one, other); }
  std::size_t breaks_of(PeerId end, Instant now) const;

  std::map<Pair, std::uint32_t> attempts_;
  std::map<Pair, Instant> breaks_;  // when each did last
  std::optional<Instant> first_break_;
};

}  // namespace swarmline
