// Who may steer the run: whoever proves to know its admin secret (pipeline/protocol/admin_proof.h).
//   What:      gives nonces and checks proofs; counts those it refuses.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Bounds:    kNoncesMax nonces of a session; an older one is forgotten.
//   Errors:    kRefused, with a sentence that says where the secret is.
#pragma once

#include <cstdint>
#include <string>

#include "base/line_rate.h"
#include "base/log.h"
#include "base/marks.h"
#include "engine/identity/secrets.h"
#include "pipeline/coordinator/members/session_table.h"
#include "pipeline/protocol/admin_proof.h"

namespace swarmline {

class AdminGate {
 public:
  static constexpr std::size_t kNoncesMax = 4;

  // An empty secret is nobody's.
  explicit AdminGate(const std::string& secret) : secret_(secret) {}

  wire::ChallengeReply challenge(const SessionPtr& session);
  // Whether the request's proof is good. If so, its connection is no stranger's any more.
  template <typename Request>
  bool proves(const SessionPtr& session, MessageKind kind, const Request& request) {
    for (const std::string& nonce : session->nonces)
      if (!secret_.empty() &&
          equal_in_secret(request.proof(), admin_proof(secret_, nonce, kind, request))) {
        std::erase(session->nonces, std::string(nonce));
        accept(session);
        return true;
      }
    return false;
  }
  // The same, of what steers the run.
  template <typename Request>
  Result<void> check(const SessionPtr& session, MessageKind kind, const Request& request,
                     Instant now) {
    if (proves(session, kind, request)) return {};
    return refuse(session, kind, now);
  }
  std::uint64_t refused() const { return refused_; }

 private:
  static void accept(const SessionPtr& session);
  Result<void> refuse(const SessionPtr& session, MessageKind kind, Instant now);

  const std::string& secret_;
  std::uint64_t refused_ = 0;
  LineRate lines_;
};

}  // namespace swarmline
