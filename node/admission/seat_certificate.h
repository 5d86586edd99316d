// What a peer shows to other peers of its run: the run's key has signed that a seat was given to
// its own key. Whoever has the run's public key can tell, and need ask nobody. Pure.
//   Form:   lines "swarmline seat 1", run id, "PEER STAGE INCARNATION", hash of the peer's key,
//           seconds since 1970 until when it holds; then the signature (Ed25519) in hex.
//   Shown:  behind the statements of the run's keys, where it has had others (handover.h), so that
//           who knows an earlier one can tell, too.
//   Life:   kSeatCertificateSeconds (certified_seats.h); one is given at each welcome, and anew
//           with a heartbeat. That a seat is over, the coordinator says (Fenced, PeerLost): a
//           certificate alone is no seat.
//   Errors: kRefused with a sentence. Thread: any. Bounds: kLinkWordsMax bytes.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "engine/identity/identity.h"
#include "node/admission/run_trust.h"

namespace swarmline {

struct SeatCertificate {
  std::string run_id;
  Seat seat;
  KeyHash key;
  double expires = 0;
  bool operator==(const SeatCertificate&) const = default;
};

std::string to_text(const SeatCertificate& certificate, const Identity& run_key);
// Signed by the key of that run, for the key that the link has proven, not expired.
Result<SeatCertificate> check_seat_certificate(std::string_view text,
                                               std::string_view run_public_key,
                                               const KeyHash& link_key, double now);
// The same of what an end shows, statements included, by a key that the other end trusts for the
// run's. It follows the statements.
Result<SeatCertificate> check_shown_seat(std::string_view shown, RunTrust& trust,
                                         const KeyHash& link_key, double now);

}  // namespace swarmline
