// Lines of their own for processes of this machine: a network namespace for each, joined by a
// switch; what leaves it and what comes to it are each held to the line's rate.
//   Needs root, and ip and tc of iproute2.
//   Units:     Mbit/s, either way, of Ethernet frames.
//   Ownership: the namespaces end with it. Thread: one; enter() for a process of one thread.
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

  std::size_t count() const { return names_.size() - 1; }
  std::string address(std::size_t line) const;
  // From now on this process is behind that line.
  Result<void> enter(std::size_t line) const;

 private:
  explicit EmulatedLines(std::size_t lines);
  Result<void> build(const std::vector<double>& mbit_per_second);

  std::vector<std::string> names_;  // of namespaces: each line's, and the switch's
};

}  // namespace swarmline
