#include "pipeline/coordinator/members/reach.h"

namespace swarmline {
namespace {

// An IPv4 address as a listener on all IPv6 addresses sees it.
std::string plain_host(std::string host) {
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped) && host.find('.') != std::string::npos)
    host.erase(0, kMapped.size());
  return host;
}

}  // namespace

std::string_view to_string(Reach reach) {
  switch (reach) {
    case Reach::kUnknown:
      return "unknown";
    case Reach::kElsewhere:
      return "elsewhere";
    case Reach::kYes:
      return "yes";
    case Reach::kNo:
      return "no";
  }
  return "?";
}

Reach reach_from(std::string_view name) {
  for (const Reach reach : {Reach::kElsewhere, Reach::kYes, Reach::kNo})
    if (name == to_string(reach)) return reach;
  return Reach::kUnknown;
}

bool is_own_address(const std::string& address, const Connection& connection) {
  const auto said = parse_address(address);
  const auto seen = parse_address(connection.remote());
  return said && seen && plain_host(said->host) == plain_host(seen->host);
}

bool has_key(const Connection& answers, const std::string& key) {
  const auto proven = answers.peer_key();
  return key.empty() || !proven || to_string(*proven) == key;
}

}  // namespace swarmline
