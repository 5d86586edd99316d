// One averaged gradient on its way from members that hold it. Pure: says whom to ask for what.
//   Holders: those that the coordinator named, some of them shadows beside the seat whose link
//            leads to them; once it is committed, or for a joiner, the mates, too, who keep it for
//            a few steps.
//   Thread:  control thread; pure.
//   Bounds:  knobs().fetch_tries_max tries in a row when nobody has it, or it is not what its
//            digest says.
#pragma once

#include <cstdint>
#include <map>

#include "base/ids.h"
#include "pipeline/stage/common/piece_fetch.h"

namespace swarmline {

class GradientFetch {
 public:
  using Holders = std::map<Seat, Seat>;  // by the seat that a link leads to: who has it there

  GradientFetch(std::uint64_t bytes, std::uint64_t digest);

  void add_holders(const Holders& holders);  // named ones: asked again after a pause
  void add_mates(const std::map<PeerId, Seat>& mates);
  void on_peer_lost(const Seat& lost);
  // A pause is over: all that are known are worth another try.
  void try_again();
  // It came whole and is something else: from the beginning, of mates.
  void start_over(const std::map<PeerId, Seat>& mates);
  // False: that was the last one.
  bool count_try();

  Seat who_has_it(const Seat& linked) const;
  PieceFetch& pieces() { return pieces_; }
  std::uint64_t digest() const { return digest_; }

  bool coordinator_waits = false;  // for the report; it names the holders
  bool paused = false;             // nobody has it now

 private:
  std::uint64_t bytes_;
  std::uint64_t digest_;
  PieceFetch pieces_;
  Holders named_;
  std::uint32_t tries_ = 1;
};

}  // namespace swarmline
