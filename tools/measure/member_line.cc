#include "tools/measure/member_line.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace swarmline {

std::optional<std::string> read_line(int socket) {
  std::string line;
  for (char c = 0; ::read(socket, &c, 1) == 1;) {
    if (c == '\n') return line;
    if (line.size() == kMemberLineBytesMax) return std::nullopt;
    line += c;
  }
  return std::nullopt;
}

// To an end that is gone nothing can be said: read_line() ends then, too.
void write_line(int socket, const std::string& line) {
  const std::string text = line + "\n";
  static_cast<void>(::send(socket, text.data(), text.size(), MSG_NOSIGNAL));
}

double own_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace swarmline
