// A user's own command that knows when this machine will be taken away. It is run by /bin/sh and
// waits for the notice; its exit code says what came:
//   0:   the machine is taken, in as many seconds as the first number that it printed (30 without)
//   10:  it may be taken soon; the command is started again
//   else: it failed; it is started again, after pauses that double from 1 to 60 s
// What it prints beside that is told with the notice.
//   Ownership: the runtime outlives it; a command that still runs is killed with it.
//   Thread:    control thread. Errors: of start(): kIo. Later ones are logged, once in a row.
//   Bounds:    looked at every kLookPeriod; an output of more than kOutputBytesMax is not read.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/runtime/runtime.h"
#include "node/child_process.h"
#include "node/notices/notice.h"

namespace swarmline {

// What a command that ended so has said; nothing: that it failed.
std::optional<Notice> read_notice_command(int exit_code, const std::string& output);

class NoticeCommand {
 public:
  static constexpr Duration kLookPeriod = std::chrono::milliseconds(200);
  static constexpr Duration kPauseMin = std::chrono::seconds(1);
  static constexpr Duration kPauseMax = std::chrono::seconds(60);
  static constexpr std::size_t kOutputBytesMax = 4096;

  NoticeCommand(Runtime& runtime, std::string command,
                std::function<void(const Notice&)> on_notice);
  ~NoticeCommand();
  NoticeCommand(const NoticeCommand&) = delete;
  NoticeCommand& operator=(const NoticeCommand&) = delete;

  Result<void> start();

 private:
  void look();
  void ended(int exit_code);
  void again(Duration pause);

  Runtime& runtime_;
  const std::string command_;
  std::function<void(const Notice&)> on_notice_;
  std::string output_file_;  // removed with it
  std::optional<ChildProcess> child_;
  Duration pause_{};
  CallbackGuard guard_;
};

}  // namespace swarmline
