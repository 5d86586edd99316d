// Whether a peer takes connections, as this coordinator found it. Pure values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/net/network.h"

namespace swarmline {

enum class Reach : std::uint8_t {
  kUnknown,    // not asked, or its link has no key to ask for
  kElsewhere,  // it says an address of another host than it comes from: nobody asks there
  kYes,        // it answers at its address
  kNo,         // nobody answers there, or somebody else
};
std::string_view to_string(Reach reach);
Reach reach_from(std::string_view name);  // kUnknown: of no other

// Its address may be asked: it is the host's that the connection comes from. So no peer has the
// coordinator connect to whom it likes.
bool is_own_address(const std::string& address, const Connection& connection);
// Whoever answers has the key that the other link has proven; where neither link proves one, that
// can't be told.
bool has_key(const Connection& answers, const std::string& key);

}  // namespace swarmline
