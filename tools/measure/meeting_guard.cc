#include "tools/measure/meeting_guard.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/identity/secrets.h"

namespace swarmline {
namespace {

constexpr std::string_view kDials = "dials";
constexpr std::string_view kAnswers = "answers";

std::unexpected<Error> unknown() {
  return fail(ErrorCode::kRefused,
              "it does not know this measurement's secret; join by the line that the end that "
              "listens prints");
}

}  // namespace

std::string MeetingGuard::proof(std::string_view who, const LinkFacts& facts) const {
  return to_hex(as_bytes(
      as_string(hmac_sha256(join_.secret, fmt::format("measures {} {}", who, facts.binding)))));
}

std::optional<KeyHash> MeetingGuard::pinned(const Address& dialled) {
  const bool listens = std::ranges::find(join_.addresses, dialled) != join_.addresses.end();
  return listens ? std::optional(join_.run_key) : std::nullopt;
}

std::string MeetingGuard::opening(const Address&, const LinkFacts& facts) {
  return proof(kDials, facts);
}

Result<std::string> MeetingGuard::judge(const Address&, const LinkFacts& facts,
                                        const std::string& answer) {
  if (!equal_in_secret(answer, proof(kAnswers, facts))) return unknown();
  return std::string(kAnswers);
}

void MeetingGuard::admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) {
  if (!equal_in_secret(opening, proof(kDials, facts))) return verdict(unknown());
  verdict(Admission{.as = std::string(kDials), .answer = proof(kAnswers, facts)});
}

}  // namespace swarmline
