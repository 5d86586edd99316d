// Which seats were given certificates, by which of the run's keys and until when: whoever has one
// that ends, or one of a key that is the run's no more, is given another. Pure.
//   Life:   a certificate is given anew once less than kSeatCertificateLeft of its life is left, as
//           long as the seat's heartbeats come.
//   Thread: any, one at a time. Errors: none. Bounds: a line a peer.
#pragma once

#include <map>

#include "base/ids.h"
#include "engine/identity/key_hash.h"

namespace swarmline {

inline constexpr double kSeatCertificateSeconds = 30.0 * 24 * 3600;
inline constexpr double kSeatCertificateLeft = 0.5;

class CertifiedSeats {
 public:
  void gave(const Seat& seat, const KeyHash& by, double expires) {
    given_.insert_or_assign(seat.peer, Given{.seat = seat, .by = by, .expires = expires});
  }
  // True of a seat that was given none, too.
  bool is_due(const Seat& seat, const KeyHash& by, double now) const {
    const auto found = given_.find(seat.peer);
    if (found == given_.end() || found->second.seat != seat || found->second.by != by) return true;
    return found->second.expires - now < kSeatCertificateLeft * kSeatCertificateSeconds;
  }

 private:
  struct Given {
    Seat seat;
    KeyHash by;
    double expires = 0;
  };
  std::map<PeerId, Given> given_;
};

}  // namespace swarmline
