// What members of a run know, and whoever only reaches its ports does not, where links are not
// authenticated otherwise.
//   What:   the coordinator has a key of the run (in its journal). Each Welcome says the proof of
//           its seat, which is said again with the Hello that names that seat as its own; and a key
//           that all members share, with which the first message of a link is signed.
//   Source: HMAC-SHA256 (RFC 2104). Thread: any.
#pragma once

#include <string>

#include "base/ids.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

// Of a peer's incarnation: it may be sent to another stage under the same one.
std::string seat_proof(const std::string& run_key, const Seat& seat);
std::string link_key(const std::string& run_key);
std::string link_proof(const std::string& link_key, wire::LinkHello hello);

// Without a key everybody is believed.
bool proves_seat(const std::string& run_key, const Seat& seat, const std::string& proof);
bool proves_membership(const std::string& link_key, const wire::LinkHello& hello);

}  // namespace swarmline
