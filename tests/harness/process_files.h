// What /proc says of a process.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <sys/types.h>

namespace swarmline {

// Empty where there is no such file, or where the process ends between opening and reading it (a
// stream's iterators would throw then).
inline std::string process_file(const std::string& process, const std::string& name) {
  std::ifstream file("/proc/" + process + "/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
inline std::string process_file(pid_t pid, const std::string& name) {
  return process_file(std::to_string(pid), name);
}

}  // namespace swarmline
