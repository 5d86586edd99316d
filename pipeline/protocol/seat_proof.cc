#include "pipeline/protocol/seat_proof.h"

#include <fmt/format.h>

#include "engine/identity/secrets.h"

namespace swarmline {

std::string seat_proof(const std::string& run_key, const Seat& seat) {
  return as_string(hmac_sha256(
      run_key, fmt::format("swarmline seat 1 {} {}", seat.peer.value, seat.incarnation.value)));
}

std::string link_key(const std::string& run_key) {
  return as_string(hmac_sha256(run_key, "swarmline links 1"));
}

std::string link_proof(const std::string& link_key, wire::LinkHello hello) {
  hello.clear_proof();
  return as_string(hmac_sha256(link_key, hello.SerializeAsString()));
}

bool proves_seat(const std::string& run_key, const Seat& seat, const std::string& proof) {
  return run_key.empty() || equal_in_secret(proof, seat_proof(run_key, seat));
}

bool proves_membership(const std::string& link_key, const wire::LinkHello& hello) {
  return link_key.empty() || equal_in_secret(hello.proof(), link_proof(link_key, hello));
}

}  // namespace swarmline
