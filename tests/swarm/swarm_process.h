// Swarms of real processes for tests: the program itself over loopback TCP, in a folder of its own,
// ports from the system, killed with the test whatever happens to it.
//   Errors: a wait that runs into its bound fails the test, and what the processes wrote is shown.
//   Thread: one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "engine/store/json_value.h"
#include "node/child_process.h"
#include "node/run_folder.h"
#include "pipeline/protocol/run_status.h"
#include "tests/runtime/comes_true.h"
#include "tests/store/temp_folder.h"

namespace swarmline {

// One process of the program; its output goes to a file.
class Program {
 public:
  Program(const TempFolder& folder, const std::string& name, std::vector<std::string> arguments);
  // Another program, by its path.
  Program(const TempFolder& folder, const std::string& name, const std::string& program,
          std::vector<std::string> arguments);

  pid_t pid() const { return process_->pid(); }
  bool running() { return !process_->poll(); }
  void signal(int signal) { process_->send_signal(signal); }
  // The exit code; a process that does not end is killed and fails the test (-1).
  int wait(double seconds_max = kPatienceSeconds);
  std::string output() const;  // standard output and error so far
  // Fails the test when the text does not come.
  bool wait_for_output(const std::string& text, double seconds_max = kPatienceSeconds);

 private:
  std::string name_;
  std::string output_file_;
  std::optional<ChildProcess> process_;
};

struct Ended {
  int code = -1;
  std::string output;
};
Ended run_program(const TempFolder& folder, const std::string& name,
                  std::vector<std::string> arguments);

// A small run of its own folder: config file, data, and whatever is started on them.
class SwarmFolder {
 public:
  // `overrides`: "section.key=value", on top of a run of two stages with one peer each.
  explicit SwarmFolder(std::vector<std::string> overrides);

  const TempFolder& temp() const { return temp_; }
  const RunFolder& run() const { return run_; }
  // CONFIG and the --set flags, for launch and coordinator.
  std::vector<std::string> arguments(const std::string& command,
                                     std::vector<std::string> more = {}) const;
  Program start(const std::string& command, std::vector<std::string> more = {}) const;
  // Flags of launch: devices that compute at these speeds, whatever the machine does.
  std::vector<std::string> emulating(int forward_ms, int backward_ms) const;
  // The same for launch, where what was killed stays away.
  static std::vector<std::string> without_restarts(std::vector<std::string> arguments);
  // A whole run to its end. Another name is another run folder.
  Ended launch(std::vector<std::string> more = {}) const;

  // The newest status of a live run, or of an ended one.
  std::optional<RunStatus> status() const;
  // Fails the test (and returns nothing) when `holds` does not come true.
  std::optional<RunStatus> wait_until(const std::function<bool(const RunStatus&)>& holds,
                                      double seconds_max = kPatienceSeconds) const;
  std::optional<RunStatus> wait_for_step(std::uint64_t step) const;
  std::vector<JsonValue> log(const std::string& kind) const;  // lines of that kind
  std::string logs() const;                                   // of all processes

 private:
  TempFolder temp_;
  RunFolder run_;
  std::vector<std::string> overrides_;
};

// Of a tensor's peak. float64: what rounding makes of another order of sums stays far below this.
inline constexpr double kReferenceDifferenceMax = 1e-9;
// The parameters are those of the same float64 run in one process, which it makes.
void expect_reference(const SwarmFolder& swarm, double difference_max = kReferenceDifferenceMax,
                      std::vector<std::string> more = {});
// ... of a run that was stopped: of so many steps as its newest checkpoint has.
void expect_reference_as_far_as_it_got(const SwarmFolder& swarm);

// Running processes below `ancestor`, as the system lists them.
std::vector<pid_t> descendants(pid_t ancestor);
std::string command_line(pid_t pid);  // words parted by blanks
// The descendant of `launch` whose command line has the text; fails the test when there is none.
pid_t process_with(pid_t launch, const std::string& text);
// From now on orphans below this process become its children, so that they can be found.
void adopt_orphans();
// Everything started below this process ends within the bound; what does not fails the test and is
// killed. Call it when every Program has been waited for.
void expect_nothing_left(double seconds_max = 10);

}  // namespace swarmline
