#include "pipeline/coordinator/members/admin_gate.h"

#include "pipeline/protocol/message_bounds.h"

namespace swarmline {

wire::ChallengeReply AdminGate::challenge(const SessionPtr& session) {
  if (session->nonces.size() >= kNoncesMax) session->nonces.erase(session->nonces.begin());
  session->nonces.push_back(random_secret(kSecretBytes));
  wire::ChallengeReply reply;
  reply.set_nonce(session->nonces.back());
  return reply;
}

void AdminGate::accept(const SessionPtr& session) {
  SWARMLINE_MARK("admin_gate.proved");
  if (!session->has_seat()) session->channel->connection().believe(bounds_of_peer());
}

Result<void> AdminGate::refuse(const SessionPtr& session, MessageKind kind, Instant now) {
  SWARMLINE_MARK("admin_gate.refused");
  ++refused_;
  if (const auto times = lines_.happened(now))
    log(LogLevel::kWarn,
        "refused a {} from {}: it did not prove to know the admin secret ({} such)",
        to_string(kind), session->channel->connection().remote(), times);
  return fail(ErrorCode::kRefused,
              "only who can read the run's folder may steer the run (its secret is in admin.key "
              "there): name the folder, on the machine where it is, e.g. \"swarmline stop "
              "runs/NAME\"");
}

}  // namespace swarmline
