// Runs whose links are between keys within this machine, for tests.
#pragma once

#include <string>
#include <vector>

#include "tests/swarm/swarm_process.h"

namespace swarmline {

inline const std::vector<std::string> kKeyed = {"security.loopback=true"};

inline std::vector<std::string> keyed(std::vector<std::string> more) {
  more.insert(more.end(), kKeyed.begin(), kKeyed.end());
  return more;
}

// What stands in quotes in the line that the coordinator prints.
inline std::string printed_join(Program& coordinator) {
  if (!coordinator.wait_for_output("swarmline peer --join '")) return "swarm1none";
  const std::string output = coordinator.output();
  const std::size_t begin = output.find("--join '") + 8;
  return output.substr(begin, output.find('\'', begin) - begin);
}

}  // namespace swarmline
