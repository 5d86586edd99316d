// The addresses of this machine's network interfaces that are up.
//   Thread: any. Errors: none; what the system does not tell is left out.
//   Bounds: kOwnHostsMax, IPv4 first; without loopback, link-local ones and what is no unicast.
#pragma once

#include <string>
#include <vector>

namespace swarmline {

inline constexpr std::size_t kOwnHostsMax = 4;

std::vector<std::string> own_hosts();

}  // namespace swarmline
