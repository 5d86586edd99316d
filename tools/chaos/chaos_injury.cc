#include "tools/chaos/chaos_injury.h"

#include <cstdlib>
#include <sys/wait.h>

#include <fmt/format.h>

#include "base/log.h"

namespace swarmline {

namespace {
constexpr double kSlowDiskShare = 0.9;  // of the time that nothing gets to the disk

constexpr int kCommandSecondsMax = 10;
constexpr const char* kCommandVariable = "SWARMLINE_CHAOS_COMMAND";

// The whole run is held meanwhile; one that does not return is ended.
void run_command(const std::string& command) {
  if (command.empty()) return;
  ::setenv(kCommandVariable, command.c_str(), 1);
  const int ended = std::system(
      fmt::format("timeout {} /bin/sh -c \"${}\"", kCommandSecondsMax, kCommandVariable).c_str());
  ::unsetenv(kCommandVariable);
  if (ended != 0)
    log(LogLevel::kWarn, "'{}' ended with {} (124: not within {} s)", command, WEXITSTATUS(ended),
        kCommandSecondsMax);
}
}  // namespace

double left_by(const ChaosFault& fault) {
  switch (fault.kind) {
    case ChaosKind::kSlow:
      return 1 / fault.factor;
    case ChaosKind::kCorrupt:
    case ChaosKind::kJoin:
    case ChaosKind::kDiskFull:
    case ChaosKind::kDiskSlow:
    case ChaosKind::kJournalRefused:
    case ChaosKind::kCommand:
      return 1;
    default:
      return 0;
  }
}

void hurt(ChaosSwarm& swarm, const ChaosFault& fault, const std::string& process) {
  switch (fault.kind) {
    case ChaosKind::kKill:
    case ChaosKind::kRestart:
      return swarm.kill(process);
    case ChaosKind::kStop:
      return swarm.stop(process);
    case ChaosKind::kSlow:
      return swarm.set_slow(process, fault.factor);
    case ChaosKind::kCut:
      return swarm.cut(process);
    case ChaosKind::kCorrupt:
      return swarm.corrupt(process, fault.flips);
    case ChaosKind::kHalfOpen:
      return swarm.half_open(process);
    case ChaosKind::kIsolate:
      return swarm.isolate(process);
    case ChaosKind::kDiskFull:
      return swarm.set_disk_full(process, true);
    case ChaosKind::kDiskSlow:
      return swarm.lock_journal(kSlowDiskShare);
    case ChaosKind::kJournalRefused:
      return swarm.lock_journal(1);
    case ChaosKind::kCommand:
      return run_command(fault.command);
    case ChaosKind::kJoin:
      return;
  }
}

void heal(ChaosSwarm& swarm, const ChaosFault& fault, const std::string& process) {
  switch (fault.kind) {
    case ChaosKind::kStop:
      return swarm.go_on(process);
    case ChaosKind::kSlow:
      return swarm.set_slow(process, 1);
    case ChaosKind::kCut:
    case ChaosKind::kHalfOpen:
    case ChaosKind::kIsolate:
      return swarm.heal(process);
    case ChaosKind::kDiskFull:
      return swarm.set_disk_full(process, false);
    case ChaosKind::kDiskSlow:
    case ChaosKind::kJournalRefused:
      return swarm.lock_journal(0);
    case ChaosKind::kCommand:
      return run_command(fault.undo);
    case ChaosKind::kCorrupt:
      return swarm.corrupt(process, 0);
    case ChaosKind::kKill:
    case ChaosKind::kRestart:
    case ChaosKind::kJoin:
      return;
  }
}

}  // namespace swarmline
