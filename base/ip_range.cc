#include "base/ip_range.h"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

namespace swarmline {
namespace {

constexpr unsigned kIpv4Bits = 32, kIpv6Bits = 128;
constexpr std::size_t kIpv4At = 12;  // within IPv6
constexpr std::array<std::uint8_t, kIpv4At> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255};

}  // namespace

bool IpRange::read(std::string_view host, Bytes& to, bool& is_ipv4) {
  const std::string text(host);
  is_ipv4 = ::inet_pton(AF_INET, text.c_str(), to.data() + kIpv4At) == 1;
  if (is_ipv4) {
    std::ranges::copy(kIpv4Prefix, to.begin());
    return true;
  }
  return ::inet_pton(AF_INET6, text.c_str(), to.data()) == 1;
}

Result<IpRange> IpRange::parse(std::string_view text) {
  const auto no_range = [&] {
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("\"{}\" is no range of IP addresses; expected one like 10.0.0.0/8", text));
  };
  const std::size_t slash = text.find('/');
  IpRange range;
  bool is_ipv4 = false;
  if (!read(text.substr(0, slash), range.network_, is_ipv4)) return no_range();
  const unsigned most = is_ipv4 ? kIpv4Bits : kIpv6Bits;
  unsigned bits = most;
  if (slash != std::string_view::npos) {
    const std::string_view number = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(number.begin(), number.end(), bits);
    if (error != std::errc() || end != number.end() || bits > most) return no_range();
  }
  range.bits_ = bits + (kIpv6Bits - most);
  return range;
}

bool IpRange::contains(std::string_view host) const {
  Bytes bytes{};
  bool is_ipv4 = false;
  if (!read(host, bytes, is_ipv4)) return false;
  constexpr unsigned kByte = 8;
  const unsigned whole = bits_ / kByte, rest = bits_ % kByte;
  if (std::memcmp(bytes.data(), network_.data(), whole) != 0) return false;
  if (rest == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xFF00U >> rest);
  return ((bytes.at(whole) ^ network_.at(whole)) & mask) == 0;
}

bool in_any(const std::vector<IpRange>& ranges, std::string_view host) {
  return std::ranges::any_of(ranges, [&](const IpRange& range) { return range.contains(host); });
}

}  // namespace swarmline
