#include "engine/config/link_security.h"

#include <algorithm>

namespace swarmline {

bool is_loopback(std::string_view host) {
  const auto dotted = [](char c) { return c == '.' || (c >= '0' && c <= '9'); };
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && std::ranges::all_of(host, dotted));
}

bool wants_keys(const RunConfig& config) {
  std::string_view host = config.net.listen;
  host = host.substr(0, host.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return config.security.loopback || (!config.security.insecure && !is_loopback(host));
}

}  // namespace swarmline
