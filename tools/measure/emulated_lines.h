// Lines of their own for processes of this machine: a network namespace for each, joined by a
// switch; what leaves it and what comes to it are each held to the line's rate.
//   Needs root, ip and tc of iproute2, and nsenter of util-linux.
//   Units:     Mbit/s, either way, of Ethernet frames.
//   Ownership: the namespaces have no name and end with it, or with this process, however that
//              ends, and those who entered them. Thread: one, of a process that has no other yet.
//   Errors:    kUserMistake: it can't be had here; which command failed.
//   Bounds:    kLinesMax lines.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace swarmline {

class EmulatedLines {
 public:
  static constexpr std::size_t kLinesMax = 64;

  static Result<std::unique_ptr<EmulatedLines>> make(const std::vector<double>& mbit_per_second);
  ~EmulatedLines();
  EmulatedLines(const EmulatedLines&) = delete;
  EmulatedLines& operator=(const EmulatedLines&) = delete;

  std::size_t count() const { return spaces_.size() - 1; }
  std::string address(std::size_t line) const;
  // From now on this process is behind that line.
  Result<void> enter(std::size_t line) const;

 private:
  EmulatedLines() = default;
  Result<void> build(const std::vector<double>& mbit_per_second);
  Result<void> add_space();
  // How a command is run there.
  std::string in(std::size_t space) const;
  std::string path(std::size_t space) const;

  std::vector<int> spaces_;  // descriptors of namespaces: each line's, and the switch's
};

}  // namespace swarmline
