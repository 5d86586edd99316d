// Copies a run's checkpoints into object storage as they come, and removes there what the run does
// not keep.
//   What:      the newest that is in place is copied, one at a time; those that come meanwhile are
//              passed over for the newest of them. What fails is tried again, after a pause that
//              doubles; what trying again does not mend is said, and tried with the next one. Its
//              files have a second name meanwhile, in the outbox, so that the run may remove it.
//   Ownership: owns its thread; the runtime outlives it. Thread: control thread.
//   Errors:    warnings in the log: training does not depend on it.
//   Bounds:    one copy under way and one waiting; kPauseMin to kPauseMax between tries.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/callback_guard.h"
#include "base/units.h"
#include "engine/checkpoint/retention.h"
#include "engine/device/cpu_device.h"
#include "engine/runtime/asio_runtime.h"
#include "node/object_store/checkpoint_store.h"

namespace swarmline {

class CheckpointMirror {
 public:
  static constexpr Duration kPauseMin = std::chrono::seconds(1);
  static constexpr Duration kPauseMax = std::chrono::minutes(1);
  // Once the run is over: so many tries more of the last one.
  static constexpr int kLastTriesMax = 6;
  // Which stay; asked on the mirror's thread.
  using Retain = std::function<Retention()>;

  // `outbox`: a folder beside the checkpoints, made and removed as needed.
  CheckpointMirror(AsioRuntime& runtime, CheckpointStore::Options store, std::string outbox,
                   Retain retain);
  ~CheckpointMirror();  // a copy under way is cut short
  CheckpointMirror(const CheckpointMirror&) = delete;
  CheckpointMirror& operator=(const CheckpointMirror&) = delete;

  // It is in place in the run's folder.
  void copy(const std::string& path);
  // The run is over: `done` when all is copied that is to be, or given up.
  void finish(std::function<void()> done);
  // Its user does not want to wait: a copy under way is cut short, and `done` comes soon.
  void give_up() { *stop_ = true; }

 private:
  void begin();
  void ended(const Result<void>& copied);

  AsioRuntime& runtime_;
  std::shared_ptr<std::atomic<bool>> stop_;
  CheckpointStore store_;
  std::string outbox_;
  Retain retain_;
  CpuDevice device_;
  std::optional<std::string> waiting_;  // the next one
  std::string copying_;                 // empty: none
  Duration pause_{};                    // after failures
  int tries_ = 0;                       // of `copying_`, since the run is over
  std::function<void()> done_;
  CallbackGuard guard_;
};

enum class Unfinished { kStay, kGo };  // those without a manifest: copying ended, or goes on

// Removes there what `retention` does not keep of the whole ones; the names of what went.
Result<std::vector<std::string>> prune_store(const CheckpointStore& store,
                                             const Retention& retention, bool only_look = false,
                                             Unfinished unfinished = Unfinished::kStay);

}  // namespace swarmline
