// How whoever steers a run proves that it may: it knows the run's admin secret, which lies in the
// run folder, and says it over no connection.
//   What:   the coordinator gives a nonce (ChallengeReply), the proof is over it and over what is
//           asked. It is good once, over that connection, for that request.
//   Source: HMAC-SHA256 (RFC 2104). Thread: any.
#pragma once

#include <string>

#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

// `request`: without its proof.
std::string admin_proof(const std::string& secret, const std::string& nonce, MessageKind kind,
                        const std::string& request);

template <typename Request>
std::string admin_proof(const std::string& secret, const std::string& nonce, MessageKind kind,
                        Request request) {
  request.clear_proof();
  return admin_proof(secret, nonce, kind, request.SerializeAsString());
}

}  // namespace swarmline
