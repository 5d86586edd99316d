// One thread for calls that block: they run there in order, and their ends are said on the control
// thread.
//   Ownership: the runtime outlives it. Destroying it waits for the call under way; those behind it
//              never begin, and nothing more is said.
//   Thread:    control thread; calls run on the other one.
//   Errors:    a call's own; a call must not throw.
//   Bounds:    as many calls as are given to it: whoever gives them waits for their ends.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/callback_guard.h"
#include "base/result.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

class StoreThread {
 public:
  using Call = std::function<Result<void>()>;
  using Done = std::function<void(Result<void>)>;

  explicit StoreThread(Runtime& runtime);
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  void run(Call call, Done done);

 private:
  struct Entry {
    Call call;
    Done done;
  };
  void work();

  Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Entry> calls_;
  bool stopping_ = false;
  CallbackGuard guard_;
  std::thread thread_;
};

}  // namespace swarmline
