// Child processes of a supervisor. A child has a process group of its own (the terminal's Ctrl-C
// reaches the supervisor alone) and, unless asked otherwise, is killed by the kernel when the
// supervisor dies.
//   Ownership: destroying a running child kills it and waits for it.
//              It gets none of the parent's open files and sockets.
//   Thread:    start children on the thread that outlives them all (the kernel watches that
//   thread). Errors:    kIo with the system's reason.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace swarmline {

class ChildProcess {
 public:
  struct Options {
    std::string program;                 // path
    std::vector<std::string> arguments;  // without the program's name
    // Standard output and error are appended to it. Made for its owner alone: a coordinator prints
    // the string that joins its run.
    std::string output_file;
    int output = -1;  // its standard output instead, a file of the caller's
    int input = -1;   // its standard input, a file of the caller's; -1: empty
    bool dies_with_parent = true;
  };
  static Result<ChildProcess> start(const Options& options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // The exit code once it has ended (128 + signal when a signal ended it); never blocks.
  std::optional<int> poll();
  // Whether it has ended; blocks for at most `most`.
  bool wait(Duration most);
  void send_signal(int signal);
  // Its exit code, as poll() has it; blocks until it has ended, and kills it after `most`.
  int wait_or_kill(Duration most);
  // Kills it if it runs, and waits.
  void kill_and_wait();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;  // 0: moved from
  std::optional<int> exit_code_;
};

// The running program's own path.
Result<std::string> own_program_path();

}  // namespace swarmline
