// Watches for the notice that this machine will be taken away: asks a cloud's metadata server, or
// runs a command of the user's, and tells what they say.
//   What:      [peer] notices = "auto" | "aws" | "gcp" | "azure" | "command" | "none"; with "auto",
//              the cloud that the machine's firmware names, else none.
//   Ownership: the runtime outlives it. Thread: control thread.
//   Errors:    of open(): kUserMistake with the key's name. A server that does not answer is asked
//              again, kPauseMin to kPauseMax apart, and said once until it does.
//   Bounds:    one request, or one command, at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/net/http/http_client.h"
#include "engine/runtime/asio_runtime.h"
#include "node/notices/notice.h"

namespace swarmline {

class NoticeCommand;

class NoticeWatch {
 public:
  static constexpr Duration kPauseMin = std::chrono::seconds(1);
  static constexpr Duration kPauseMax = std::chrono::seconds(30);
  static constexpr Duration kFarewellMax = std::chrono::seconds(1);
  using OnNotice = std::function<void(const Notice&)>;

  NoticeWatch(AsioRuntime& runtime, const PeerConfig& machine, OnNotice on_notice);
  ~NoticeWatch();
  NoticeWatch(const NoticeWatch&) = delete;
  NoticeWatch& operator=(const NoticeWatch&) = delete;

  Result<void> open();
  void start();  // after open()
  // This machine has nothing left to do: says so where the cloud takes such a word, then calls
  // `done`, kFarewellMax later at most.
  void leave(std::function<void()> done);

 private:
  void ask();
  void answered(Result<HttpClientAnswer> answer);
  void failed(const Error& error);
  void tell(const Notice& notice);

  AsioRuntime& runtime_;
  PeerConfig machine_;
  OnNotice on_notice_;
  std::unique_ptr<NoticeProvider> provider_;  // of a cloud, or
  std::unique_ptr<NoticeCommand> command_;    // the user's; or neither
  Address server_;
  HttpClient client_;
  Duration pause_{};  // after failures; 0: the last answer was good
  CallbackGuard guard_;
};

}  // namespace swarmline
