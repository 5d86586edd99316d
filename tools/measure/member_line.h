// What members of a benchmark's group have in common: lines over the socket to who started them,
// and the CPU time of their process.
#pragma once

#include <optional>
#include <string>

namespace swarmline {

std::optional<std::string> read_line(int socket);  // none: it has ended
void write_line(int socket, const std::string& line);
double own_cpu_seconds();

}  // namespace swarmline
