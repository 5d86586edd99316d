#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "engine/net/network.h"

namespace swarmline {
namespace {

std::unexpected<Error> bad_address(std::string_view text, std::string_view why) {
  return fail(
      ErrorCode::kUserMistake,
      fmt::format(
          "address \"{}\": {}; expected host:port, for example 127.0.0.1:7700 or [::1]:7700", text,
          why));
}

}  // namespace

std::string to_string(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port)
            : fmt::format("{}:{}", address.host, address.port);
}

Result<Address> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad_address(text, "there is no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad_address(text, "an IPv6 host goes in brackets");
  }
  if (host.empty()) return bad_address(text, "there is no host");
  std::uint16_t port = 0;
  const char* end = port_text.data() + port_text.size();
  const auto [stop, error] = std::from_chars(port_text.data(), end, port);
  if (error != std::errc() || stop != end || port_text.empty()) {
    return bad_address(text, "the port is not a number from 0 to 65535");
  }
  return Address{std::string(host), port};
}

// Whoever listens on all its addresses is reached at the one that it dialled from.
std::string seen_from(const Connection& connection, const std::string& advertised) {
  auto address = parse_address(advertised);
  const std::string own = connection.local_host();
  if (!address || own.empty() || (address->host != "0.0.0.0" && address->host != "::"))
    return advertised;
  address->host = own;
  return to_string(*address);
}

}  // namespace swarmline
