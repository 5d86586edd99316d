// The page of a run that another process coordinates, or nobody any more: from its folder.
//   What:      steps and events from log.jsonl, as they are added; the status from its coordinator
//              while that answers, else from what it left (read_status.h).
//   Ownership: the runtime outlives it.
//   Thread:    control thread; what it reads, it reads there: it is for a process of its own.
//   Errors:    of open(): kUserMistake, kIo. Later ones leave what is shown as it is.
//   Bounds:    those of run_page.h; files are looked at kLook apart, what a coordinator left
//              kLeftLook apart.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/net/network.h"
#include "engine/runtime/asio_runtime.h"
#include "node/admin_client.h"
#include "node/page/log_tail.h"
#include "node/page/run_page.h"
#include "node/run_folder.h"

namespace swarmline {

class ShownRun {
 public:
  static constexpr Duration kLook = std::chrono::milliseconds(500);
  static constexpr Duration kLeftLook = std::chrono::seconds(5);

  ShownRun(AsioRuntime& runtime, RunFolder folder);
  ShownRun(const ShownRun&) = delete;
  ShownRun& operator=(const ShownRun&) = delete;

  // Listens there, on an address of this machine alone; the URL, token included.
  Result<std::string> open(const Address& address);

 private:
  void look();
  void ask(const Address& coordinator);
  void take_status(std::string json);
  void read_what_is_left(const Error& unanswered);

  AsioRuntime& runtime_;
  const RunFolder folder_;
  LogTail tail_;
  std::unique_ptr<RunPage> page_;
  std::string status_;
  bool over_ = false;
  std::optional<Instant> left_read_;
  std::unique_ptr<Network> network_;
  std::optional<AdminClient> client_;
  bool asked_ = false;
  CallbackGuard callbacks_;
};

}  // namespace swarmline
