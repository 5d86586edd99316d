// One of some processes that exchange the bytes of an all-reduce over plain sockets of loopback,
// and neither add nor check them: what no all-reduce over TCP can be faster than.
#pragma once

#include <cstdint>

namespace swarmline {

struct SocketMemberSpec {
  std::uint32_t rank = 0, members = 2;
  std::uint64_t bytes = 0;  // of the vector; to and from each other one go 2 * bytes / members
};

// Over `line` it speaks as own_member.h says.
void serve_socket_member(const SocketMemberSpec& spec, int line);

}  // namespace swarmline
