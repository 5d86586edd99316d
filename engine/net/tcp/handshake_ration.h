// How many handshakes that come to nothing one address may cost a process: each takes about a
// millisecond of the control thread, whoever began it. Pure.
//   What:    an address has `burst` of them, and gets `per_second` back each second. Only what has
//            failed is charged, so that a crowd of peers behind one router is not held up.
//   Thread:  one thread at a time.
//   Bounds:  hosts_max addresses are remembered; who has all of its own again is not.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "base/units.h"

namespace swarmline {

class HandshakeRation {
 public:
  struct Bounds {
    double burst = 512;
    double per_second = 64;
    std::size_t hosts_max = 4096;
  };

  explicit HandshakeRation(const Bounds& bounds) : bounds_(bounds) {}

  // Whether a handshake may begin with that address.
  bool allows(const std::string& host, Instant now) const;
  // One has failed, after this end did its work.
  void charge(const std::string& host, Instant now);
  std::size_t hosts() const { return hosts_.size(); }

 private:
  struct Left {
    double handshakes = 0;
    Instant at;
  };
  double left(const Left& of, Instant now) const;
  void make_room(Instant now);

  const Bounds bounds_;
  std::map<std::string, Left> hosts_;
};

}  // namespace swarmline
