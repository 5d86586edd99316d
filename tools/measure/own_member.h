// One member of an all-reduce as it runs in a peer, for benchmarks: a process or a thread with a
// control thread's work, links of its own, and the code that averages gradients.
//   Thread: the one that serves. Errors: said over the line, one sentence; it never ends a process.
//   Bounds: kOwnMemberPatience for the others, and OwnMemberSpec::patience for a round; of who has
//           not said which member it is, kHelloBytesMax of meta and no payload.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip_range.h"
#include "base/units.h"
#include "compression/codec.h"
#include "engine/net/link_guard.h"

namespace swarmline {

inline constexpr Duration kOwnMemberPatience = std::chrono::seconds(60);
inline constexpr std::uint64_t kHelloBytesMax = 64;

struct OwnMemberSpec {
  std::uint32_t rank = 0, members = 2;
  std::uint64_t bytes = 0;                   // of fp32
  CodecSpec codec;                           // of both halves
  std::string way = "tcp";                   // that chunks go: payload_way.h, without "tls"
  std::string host = "127.0.0.1";            // that it listens at
  std::vector<double> mbit_per_second = {};  // by rank, that slices are cut by; none: equal ones
  std::shared_ptr<LinkGuard> guard = {};     // of its links; none: they are plain
  std::vector<IpRange> trusted = {};         // payload_way.h; none: loopback alone
  Duration patience = kOwnMemberPatience;
};

inline constexpr std::string_view kWithoutWay = "without ";
inline constexpr std::string_view kMemberFailed = "failed ";

// What a member says in the place of its port or of "ready" that has no way to the others.
void say_without(int line, const std::string& why);

// Says its port in a line, is told all HOST:PORT by rank in one, and does then as member_group.h
// says; returns when the socket `line` ends. In the place of anything that it would say there may
// be kWithoutWay and a sentence, where that way can't be had, or kMemberFailed and one: a link has
// ended, or a sum is wrong. It returns then, too.
void serve_own_member(const OwnMemberSpec& spec, int line);

}  // namespace swarmline
