// A run's control process as one object: its folder, data, journal and checkpoints, the lead of the
// run and its renewal, and the coordinator over all of it. What `swarmline coordinator` runs, and
// what a program embeds.
//   What:      open() does what takes its time and can be the user's mistake; from start() on it
//              leads, or waits until it can, and tells how it goes by its handlers.
//   Ownership: the runtime outlives it. It owns its network, store and files.
//   Thread:    control thread. open() blocks: it reads the data, and may ask who runs there.
//   Errors:    of open(): kUserMistake as a sentence; kIo. Later ones end it: on_finished.
//   Bounds:    those of the coordinator; kLinger from its end to on_finished, and as long as its
//              log.command takes to end (log_command.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/device/cpu_device.h"
#include "engine/store/control_store.h"
#include "engine/store/files.h"
#include "engine/store/tensorboard_log.h"
#include "node/coordinator_page.h"
#include "node/folder_sink.h"
#include "node/folder_source.h"
#include "node/key_watch.h"
#include "node/leadership.h"
#include "node/log_command.h"
#include "node/network_factory.h"
#include "node/object_store/checkpoint_mirror.h"
#include "node/protection_news.h"
#include "node/run_access.h"
#include "node/run_data.h"
#include "node/run_folder.h"
#include "pipeline/coordinator/coordinator.h"

namespace swarmline {

struct CoordinatorNodeOptions {
  RunConfig config;
  bool fresh = false;     // an older run of this name moves aside
  bool prepared = false;  // somebody else made the run folder
  bool standby = false;   // waits until nobody leads the run
  NetworkFactory network = make_tcp_network;
};

class CoordinatorNode {
 public:
  struct Handlers {
    // How the run begins; not when the folder is `prepared`.
    std::function<void(RunStart)> on_begun = {};
    std::function<void()> on_standing_by = {};
    // Peers that come are answered from now on; what they join by.
    std::function<void(const Address&, const std::string& join)> on_listening = {};
    // Once, the last thing that it does. An empty sentence: there was nothing to do, or a standby
    // was not needed.
    std::function<void(Result<RunOutcome>)> on_finished;
  };

  CoordinatorNode(AsioRuntime& runtime, CoordinatorNodeOptions options, Handlers handlers);
  ~CoordinatorNode();
  CoordinatorNode(const CoordinatorNode&) = delete;
  CoordinatorNode& operator=(const CoordinatorNode&) = delete;

  Result<void> open();
  void start();  // after open()
  // First: finish the open step, write a checkpoint, end. Again: end at once. A standby ends.
  void request_stop();

  const RunFolder& folder() const { return folder_; }
  // What `status --json` shows; empty before it leads.
  std::string status_json() const { return coordinator_ ? coordinator_->status_json() : ""; }
  // Of the run's web page, token included; empty: it has none now.
  std::string page_url() const;

 private:
  Result<void> begin_folder(const std::function<Result<RunStart>()>& begin);
  Result<void> open_files();
  void open_mirror();
  Result<void> open_numbers_elsewhere();
  void take_line(const std::string& line);
  Result<void> take_the_lead();
  std::unexpected<Error> another_leads();
  void wait_for_the_lease();
  void stand_by();
  void leads_after_all(Result<AsyncJournal*> journal);
  void make_leadership();
  void lost_the_lead(const std::string& why);
  void let_go();
  Result<void> open_data();
  Result<void> keep_settings();
  Result<void> make_network();
  Result<void> open_key();
  Result<void> settle_key();
  void wait_for_key(const std::string& why);
  void on_key(RunKey next);
  void take_key(RunKey next);
  void keep_join_string();
  Result<std::string> way_to_join(const Address& bound);
  Result<void> open_page();
  Result<void> lead();
  void look_whether_it_takes_peers(const Address& bound);
  void tell_progress();
  void step_down(const std::string& why);
  void coordinator_finished(RunOutcome outcome);
  void leave_finished(const RunOutcome& outcome);
  void leave(const RunOutcome& outcome);
  void finish(Result<RunOutcome> outcome);

  AsioRuntime& runtime_;
  CoordinatorNodeOptions options_;
  Handlers handlers_;
  RunFolder folder_;
  CpuDevice clerk_;                       // looks up invites
  std::shared_ptr<RunGuard> link_guard_;  // null: links are plain
  std::optional<KeyWatch> key_watch_;     // where there is a guard
  bool key_is_new_ = false;               // made by this process
  bool records_key_ = false;              // into the journal, now
  bool waits_for_key_ = false;            // its own is not the run's any more
  std::optional<Address> bound_;          // where peers come, once they may
  std::unique_ptr<Network> network_;
  std::unique_ptr<ControlStore> store_;
  std::optional<Leadership> leadership_;
  AsyncJournal* journal_ = nullptr;  // of store_
  std::optional<RunData> data_;
  std::optional<LineFile> log_;
  std::optional<TensorboardLog> tensorboard_;  // where the run's numbers go beside it
  std::optional<LogCommand> log_command_;
  CpuDevice writer_;  // of checkpoints
  std::optional<FolderSink> sink_;
  std::optional<CheckpointMirror> mirror_;  // where the config names object storage
  CpuDevice reader_;
  FolderSource source_;
  std::unique_ptr<CoordinatorPage> page_;  // null: none
  std::optional<Coordinator> coordinator_;
  TimerId progress_;
  std::uint64_t told_step_ = 0;
  ProtectionNews protection_;
  bool nothing_to_do_ = false;  // the run had been finished
  bool changes_run_ = true;     // to the settings that this process was started with
  bool stop_asked_ = false;
  bool over_ = false;
  CallbackGuard guard_;
};

}  // namespace swarmline
