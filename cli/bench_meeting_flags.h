// How a benchmark's other machines come: one listens, the others join by the line that it prints.
//   Errors: kUserMistake, as sentences; those of tools/measure/meeting_host.h and meeting_guest.h.
//   Thread: one, which waits for machines.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/ip_range.h"
#include "base/result.h"
#include "tools/measure/meeting_guest.h"
#include "tools/measure/meeting_host.h"

namespace swarmline {

struct MeetingFlags {
  std::string listen, join, advertise;
  double wait_seconds = 600;
  bool insecure = false;
  std::vector<std::string> trusted;
  double mbit = 0;

  // What frames themselves go over.
  std::string frames_way() const { return insecure ? "tcp" : "tls"; }
};

// Those of its own that `here` names make no sense with other machines, and those that `host` names
// not at one that joins.
void add_meeting_flags(CLI::App& command, MeetingFlags& flags, const std::vector<std::string>& here,
                       const std::vector<std::string>& host);

// Of a benchmark of this machine alone: nothing is said of others.
Result<void> check_alone(const MeetingFlags& flags, std::string_view what);
Result<std::vector<IpRange>> trusted_of(const MeetingFlags& flags);
// Without "tcp" beside keys, and "tls" without them.
Result<void> check_meeting_ways(const MeetingFlags& flags, const std::vector<std::string>& ways);
// Prints the line that others join by, who comes and who goes. All are here then.
Result<std::unique_ptr<MeetingHost>> gather_meeting(const MeetingFlags& flags,
                                                    std::string_view what, std::uint32_t members);
// Tells the others how it ended; a machine that has left is why, whatever came of it.
Result<void> end_meeting(MeetingHost& host, Result<void> done);
// Does `serve` with it until it is over, and says so.
Result<void> join_meeting(
    const MeetingFlags& flags, std::string_view what,
    const std::function<Result<void>(MeetingGuest&, const std::vector<IpRange>&)>& serve);

}  // namespace swarmline
