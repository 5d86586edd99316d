#include "engine/net/own_hosts.h"

#include <algorithm>
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <net/if.h>

namespace swarmline {
namespace {

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&v6) || IN6_IS_ADDR_MULTICAST(&v6)) return {};
    bytes = &v6;
  }
  if (bytes == nullptr || inet_ntop(address->sa_family, bytes, text, sizeof(text)) == nullptr)
    return {};
  const std::string host = text;
  return host.starts_with("169.254.") ? std::string() : host;
}

}  // namespace

std::vector<std::string> own_hosts() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  std::vector<std::string> hosts, v6;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 ||
        (one->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    std::string host = text_of(one->ifa_addr);
    auto& those = one->ifa_addr->sa_family == AF_INET6 ? v6 : hosts;
    if (!host.empty() && std::ranges::find(those, host) == those.end())
      those.push_back(std::move(host));
  }
  freeifaddrs(all);
  hosts.insert(hosts.end(), v6.begin(), v6.end());
  if (hosts.size() > kOwnHostsMax) hosts.resize(kOwnHostsMax);
  return hosts;
}

}  // namespace swarmline
