// A command of the user's that gets each line of log.jsonl on its standard input: one child
// process for as long as the coordinator lives.
//   What:      started by `/bin/sh -c`, its output appended to a file. Whatever it does, the run
//              goes on: a slow one's lines wait, and are dropped when too many do; a dead one is
//              started again, later each time, and given up after some deaths in a row. A line that
//              a dead one had not read whole is given to the next one again. What was dropped is
//              counted and logged.
//   Ownership: the runtime outlives it. Destroying it ends its input and kills what is left; a
//              coordinator that dies without that ends its input alone.
//   Thread:    control thread; nothing blocks, but for the death of a killed process.
//   Bounds:    Options: queue_bytes_max wait, restarts.attempts_max deaths in a row, `grace` from
//              end() to SIGTERM, and kKillAfter from that to SIGKILL.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "base/callback_guard.h"
#include "base/line_rate.h"
#include "engine/runtime/runtime.h"
#include "node/child_process.h"
#include "node/restart_policy.h"

namespace swarmline {

class LogCommand {
 public:
  struct Options {
    std::string command;
    std::string output_file;
    std::size_t queue_bytes_max = 8 << 20;  // of lines that it has not read yet
    Duration grace = std::chrono::seconds(10);
    RestartPolicy::Limits restarts = {.attempts_max = 20,
                                      .soon = std::chrono::seconds(30),
                                      .pause_first = std::chrono::seconds(1),
                                      .pause_max = std::chrono::minutes(5)};
  };
  static constexpr Duration kTick = std::chrono::milliseconds(100);
  static constexpr Duration kKillAfter = std::chrono::seconds(2);

  LogCommand(Runtime& runtime, Options options);
  ~LogCommand();
  LogCommand(const LogCommand&) = delete;
  LogCommand& operator=(const LogCommand&) = delete;

  void line(std::string_view json);
  // It reads what waits, and its input ends. `done` once it is gone, or had to go.
  void end(std::function<void()> done);
  std::uint64_t dropped() const { return dropped_; }

 private:
  void start();
  void tick();
  void pump();
  void look_at_child();
  void died(int code);
  void drop_everything();
  void look_at_end();
  void close_input();
  void signal_all(int signal);

  Runtime& runtime_;
  Options options_;
  RestartPolicy policy_;
  std::optional<ChildProcess> child_;
  int input_ = -1;  // our end of it
  Instant started_{};
  std::optional<Instant> restart_at_;
  bool given_up_ = false;
  std::deque<std::string> lines_;
  std::size_t bytes_ = 0;    // of them
  std::size_t written_ = 0;  // of the first
  std::uint64_t lines_given_ = 0;
  std::uint64_t dropped_ = 0;
  LineRate drops_;
  std::function<void()> done_;
  std::optional<Instant> term_at_, kill_at_;
  TimerId timer_;
  CallbackGuard guard_;
};

}  // namespace swarmline
