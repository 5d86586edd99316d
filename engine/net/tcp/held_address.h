// An address that is kept for later: bound, and nobody listens at it yet. No connection elsewhere
// gets its port meanwhile; whoever dials it is refused, as at a machine where nothing runs.
//   Ownership: until this is destroyed. A Network of this process or another may listen there
//              meanwhile.
//   Thread:    the control thread's.
//   Errors:    hold(): kNotFound: no such name; kIo: it can't be had, as while somebody listens
//              there. Both with a sentence.
#pragma once

#include "base/result.h"
#include "engine/net/network.h"

namespace swarmline {

class HeldAddress {
 public:
  HeldAddress() = default;
  ~HeldAddress();
  HeldAddress(const HeldAddress&) = delete;
  HeldAddress& operator=(const HeldAddress&) = delete;

  // Port 0 takes any free one. Once. Returns the bound address.
  Result<Address> hold(const Address& address);

 private:
  int socket_ = -1;
};

}  // namespace swarmline
