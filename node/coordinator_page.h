// The page of a run that this process coordinates: its token and URL in the run folder, what
// happened before read in the background.
//   Ownership: the runtime outlives it, and what `status_json` reads. Its URL goes with it.
//   Thread:    control thread; open() reads small files. A thread of its own reads the log and the
//              invites.
//   Errors:    of open(): kUserMistake, kIo, as sentences.
//   Bounds:    those of run_page.h and log_tail.h; invites are read kInvitesLook apart.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/device/cpu_device.h"
#include "engine/runtime/asio_runtime.h"
#include "node/page/run_page.h"
#include "node/run_folder.h"

namespace swarmline {

class CoordinatorPage {
 public:
  static constexpr Duration kInvitesLook = std::chrono::seconds(2);

  // Null: the run has none.
  static Result<std::unique_ptr<CoordinatorPage>> open(AsioRuntime& runtime,
                                                       const RunFolder& folder,
                                                       const RunConfig& config,
                                                       std::function<std::string()> status_json);
  ~CoordinatorPage();
  CoordinatorPage(const CoordinatorPage&) = delete;
  CoordinatorPage& operator=(const CoordinatorPage&) = delete;

  const std::string& url() const { return url_; }  // without its token
  void take_line(std::string_view line) { page_.take_line(line); }
  void end() { page_.end(); }

 private:
  CoordinatorPage(AsioRuntime& runtime, const RunFolder& folder, HttpOptions options,
                  PageGuard guard, std::function<std::string()> status_json);
  Result<Address> listen(const Address& address);
  void read_history();
  void read_invites_again();

  AsioRuntime& runtime_;
  const RunFolder folder_;
  std::string url_;
  std::string left_;  // in the run folder
  RunPage page_;
  std::shared_ptr<std::atomic<bool>> stop_ = std::make_shared<std::atomic<bool>>(false);
  CpuDevice reader_;
  CallbackGuard callbacks_;
};

}  // namespace swarmline
