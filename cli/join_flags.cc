#include "cli/join_flags.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "engine/config/link_security.h"

namespace swarmline {
namespace {

bool all_here(const std::vector<Address>& addresses) {
  return std::ranges::all_of(addresses,
                             [](const Address& address) { return is_loopback(address.host); });
}

}  // namespace

Result<JoinTarget> join_target(const std::string& flag, PeerConfig& machine) {
  const char* const variable = std::getenv(kJoinVariable);
  const std::string text = !flag.empty() ? flag : variable != nullptr ? variable : "";
  if (text.empty())
    return fail(ErrorCode::kUserMistake,
                fmt::format("found nothing to join, expected --join or {} with the string that the "
                            "run's coordinator prints",
                            kJoinVariable));
  auto target = parse_join(text);
  if (!target) return target;
  const bool here = all_here(target->coordinators);
  if (!target->invite && !here && !machine.insecure)
    return fail(ErrorCode::kUserMistake,
                fmt::format("--join {}: that is another machine; join by the string that its "
                            "coordinator prints (swarm1...@HOST:PORT), or, on a network of one's "
                            "own and without any protection, with --insecure",
                            text));
  if (!here && machine.listen == PeerConfig().listen) {
    const bool v6 = std::ranges::all_of(target->coordinators, [](const Address& address) {
      return address.host.find(':') != std::string::npos;
    });
    machine.listen = v6 ? "[::]:0" : "0.0.0.0:0";
  }
  return target;
}

}  // namespace swarmline
