// Whether the file of a run's key holds another key by now: `swarmline keys rotate` has changed it,
// or a user has copied it from another machine.
//   Ownership: runtime and worker outlive it. Thread: control thread; the file is read by the
//              worker.
//   Errors:    a file that can't be read is told to the log, a line a second at most, and looked at
//              again.
//   Bounds:    looks every kKeyLook, one look at a time.
#pragma once

#include <functional>
#include <string>

#include "base/callback_guard.h"
#include "base/line_rate.h"
#include "engine/device/device.h"
#include "engine/runtime/runtime.h"
#include "node/admission/run_key.h"

namespace swarmline {

inline constexpr Duration kKeyLook = std::chrono::milliseconds(500);

class KeyWatch {
 public:
  // At each look that finds another key than the known one.
  using OnKey = std::function<void(RunKey)>;
  KeyWatch(Runtime& runtime, Device& worker, std::string path, const KeyHash& known, OnKey on_key);
  // Nothing to be told of any more.
  void know(const KeyHash& key) { known_ = key; }

 private:
  void look_later();
  void look();

  Runtime& runtime_;
  Device& worker_;
  const std::string path_;
  KeyHash known_;
  OnKey on_key_;
  LineRate lines_;
  CallbackGuard guard_;
};

}  // namespace swarmline
