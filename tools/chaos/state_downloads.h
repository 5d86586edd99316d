// Whether a message belongs to a joiner's download of its stage's state, or to another one: of a
// shadow's state, or of an averaged gradient. One process's view, from the messages that pass it.
//   What:    a joiner has a seat, which its welcome and the first message of each of its links
//            name; a shadow has a name of the same form, which they never do.
//   Thread:  control thread. Pure.
//   Bounds:  kPeersMax peers are known, each by its newest seat; of others nothing matches.
#pragma once

#include <cstddef>
#include <map>

#include "base/ids.h"
#include "engine/net/frame.h"

namespace swarmline {

class StateDownloads {
 public:
  static constexpr std::size_t kPeersMax = 1024;

  void passing(const Frame& frame);  // of any kind
  // Of a StateOffer, a PieceRequest or a Piece. Others are asked for in vain.
  bool is_of_a_joiner(const Frame& frame) const;

 private:
  void has_seat(const Seat& seat);
  bool is_seated(const Seat& seat) const;

  std::map<PeerId, Seat> seats_;
};

}  // namespace swarmline
