// One member of an all-reduce as it runs in a peer, for benchmarks: a process with a control
// thread, links of its own over loopback TCP, and the code that averages gradients.
#pragma once

#include <cstdint>

#include "compression/codec.h"

namespace swarmline {

struct OwnMemberSpec {
  std::uint32_t rank = 0, members = 2;
  std::uint64_t bytes = 0;  // of fp32
  CodecSpec codec;          // of both halves
};

// Says its port in a line, is told all ports in one, and does then as member_group.h says; returns
// when the socket `line` ends. A wrong sum ends the process.
void serve_own_member(const OwnMemberSpec& spec, int line);

}  // namespace swarmline
