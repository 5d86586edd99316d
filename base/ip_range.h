// A range of IP addresses, as "10.0.0.0/8" or "fd00::/8" says it. Pure.
//   Errors: kUserMistake with a sentence for a text that is no range.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace swarmline {

class IpRange {
 public:
  // "ADDRESS/BITS", or an address alone.
  static Result<IpRange> parse(std::string_view text);
  // `host`: an IP literal. A name is in no range. IPv4 within IPv6 (::ffff:10.0.0.1) is IPv4.
  bool contains(std::string_view host) const;
  bool operator==(const IpRange&) const = default;

 private:
  using Bytes = std::array<std::uint8_t, 16>;  // IPv4: within IPv6

  static bool read(std::string_view host, Bytes& to, bool& is_ipv4);

  Bytes network_{};
  unsigned bits_ = 0;  // of the 128
};

bool in_any(const std::vector<IpRange>& ranges, std::string_view host);

}  // namespace swarmline
