// How many microbatches a source may have under way: its share, by speed, of what all have.
//   What:      all sources together have `depth` under way (lease_depth.h). One that is
//              twice as fast as another gets twice as many: their microbatches are done in the same
//              time, and none of them waits at a slow source for long. At a step's end what is left
//              of it is shared in the same way, so that no slow source sits on a stock of it while
//              fast ones have nothing more to do (guided self-scheduling: Polychronopoulos and
//              Kuck, IEEE Transactions on Computers C-36, 1987).
//   Units:     microbatches; speeds in microbatches per second.
//   Thread:    plain value; pure.
//   Bounds:    one number a source. Whoever has nothing under way may always have one.
#pragma once

#include <cstdint>
#include <map>

#include "base/ids.h"

namespace swarmline {

class SourceShares {
 public:
  // Off: no shares, each has as many as it wants.
  explicit SourceShares(bool on) : on_(on) {}
  bool on() const { return on_; }

  // `speeds`: of those that take leases; 0: not measured, taken for the others' mean.
  void set(std::uint64_t depth, std::map<PeerId, double> speeds);
  double share_of(PeerId source) const;  // of 1; 0: it takes none
  // A source of that share. `left`: microbatches that are under way or can be leased now.
  bool may_have_another(double share, std::uint64_t under_way, std::uint64_t left) const;

 private:
  bool on_;
  std::uint64_t depth_ = 0;
  std::map<PeerId, double> shares_;  // sum to 1
};

}  // namespace swarmline
