// One member of an all-reduce as it runs in a peer, for benchmarks: a process with a control
// thread, links of its own, and the code that averages gradients.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compression/codec.h"

namespace swarmline {

struct OwnMemberSpec {
  std::uint32_t rank = 0, members = 2;
  std::uint64_t bytes = 0;                   // of fp32
  CodecSpec codec;                           // of both halves
  std::string way = "tcp";                   // that chunks go: payload_way.h, without "tls"
  std::vector<std::string> addresses = {};   // by rank; none: all are on loopback
  std::vector<double> mbit_per_second = {};  // by rank, that slices are cut by; none: equal ones
};

inline constexpr std::string_view kWithoutWay = "without ";

// What a member says in the place of its port or of "ready" that has no way to the others.
void say_without(int line, const std::string& why);

// Says its port in a line, is told all ports in one, and does then as member_group.h says; returns
// when the socket `line` ends. Where that way can't be had it says kWithoutWay and a sentence in
// the place of its port or of "ready", and returns. A wrong sum ends the process.
void serve_own_member(const OwnMemberSpec& spec, int line);

}  // namespace swarmline
