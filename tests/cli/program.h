// Runs the program under test as a user would, in a folder of its own.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/store/temp_folder.h"

namespace swarmline {

struct Ran {
  int exit_code = -1;  // 128 + signal
  std::string out;
  std::string err;
};

// An empty folder under the system's temporary one; removed with its content at the end.
class ScratchFolder {
 public:
  ScratchFolder();

  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;
  bool has(const std::string& name) const;

  // A small run of 2 stages x 2 peers in float64 on text written beside it: run.toml.
  void write_small_run() const;

  // Waits for the program, at most two minutes; then kills it (exit code 137).
  Ran run(const std::vector<std::string>& arguments) const;
  // The same; `meanwhile` gets the process's id once `until` holds.
  Ran run_and(const std::vector<std::string>& arguments, const std::function<bool()>& until,
              const std::function<void(pid_t)>& meanwhile) const;

  // Living processes that were started in this folder and whose command line holds `text`.
  std::vector<pid_t> processes(const std::string& text) const;

 private:
  TempFolder temp_;
  std::string path_;  // without links, as the system names a process's folder
};

}  // namespace swarmline
