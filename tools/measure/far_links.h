// What links between this machine and others give, each way and in both directions, beside a plain
// socket between the same two. The other machines dial all of it: this one needs one port that they
// reach, and a free one for the plain socket, without which nothing stands beside the links.
//   Thread: that of host and guest; it waits for both.
//   Errors: kPeerGone, kDeadline: the other end is gone. Ways that can't be had are left out, with
//           a sentence.
//   Bounds: kLinkTaskTime until a link is there; those of measured_link.h and link_yardstick.h.
#pragma once

#include <string>
#include <vector>

#include "base/ip_range.h"
#include "tools/measure/bench_links.h"
#include "tools/measure/meeting_guest.h"
#include "tools/measure/meeting_host.h"

namespace swarmline {

inline constexpr Duration kLinkTaskTime = std::chrono::seconds(40);

struct FarLinkOptions {
  LinkBenchOptions of;
  std::vector<IpRange> trusted;  // payload_way.h
  std::string listen_host;       // for the plain socket: an IP literal, or all addresses of a kind
};

// Of all guests, one after the other.
Result<LinkBenchResult> bench_far_links(MeetingHost& host, const FarLinkOptions& options,
                                        const SecondsClock& clock, const LinkBenchNews& news);
// What a guest does until it is over.
Result<void> serve_far_links(MeetingGuest& guest, const std::vector<IpRange>& trusted);

}  // namespace swarmline
