#include "engine/net/tcp/handshake_ration.h"

#include <algorithm>

namespace swarmline {

double HandshakeRation::left(const Left& of, Instant now) const {
  return std::min(bounds_.burst, of.handshakes + bounds_.per_second * to_seconds(now - of.at));
}

bool HandshakeRation::allows(const std::string& host, Instant now) const {
  const auto found = hosts_.find(host);
  return found == hosts_.end() || left(found->second, now) >= 1;
}

void HandshakeRation::charge(const std::string& host, Instant now) {
  if (!hosts_.contains(host)) make_room(now);
  Left& of = hosts_.try_emplace(host, bounds_.burst, now).first->second;
  of = {.handshakes = std::max(0.0, left(of, now) - 1), .at = now};
}

// Who has so many addresses is not held up by this: Strangers bounds what they hold.
void HandshakeRation::make_room(Instant now) {
  if (hosts_.size() < bounds_.hosts_max) return;
  std::erase_if(hosts_, [&](const auto& host) { return left(host.second, now) >= bounds_.burst; });
  if (hosts_.size() < bounds_.hosts_max) return;
  hosts_.erase(std::ranges::max_element(hosts_, {},
                                        [&](const auto& host) { return left(host.second, now); }));
}

}  // namespace swarmline
