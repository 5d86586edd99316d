#include "pipeline/protocol/admin_proof.h"

#include <fmt/format.h>

#include "engine/identity/secrets.h"

namespace swarmline {

std::string admin_proof(const std::string& secret, const std::string& nonce, MessageKind kind,
                        const std::string& request) {
  return as_string(hmac_sha256(secret, fmt::format("swarmline admin 1 {} {}:{} {}", nonce.size(),
                                                   nonce, static_cast<unsigned>(kind), request)));
}

}  // namespace swarmline
