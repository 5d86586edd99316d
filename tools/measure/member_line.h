// What members of a benchmark's group have in common: lines over the socket to who started them,
// and the CPU time of their process.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace swarmline {

// 64 members' addresses, each a name of 255 bytes at most.
inline constexpr std::size_t kMemberLineBytesMax = 32 * 1024;

std::optional<std::string> read_line(int socket);      // none: it has ended, or says no line
void write_line(int socket, const std::string& line);  // lost where the other end is no more
double own_cpu_seconds();

}  // namespace swarmline
