#include "engine/store/store_thread.h"

#include <utility>

namespace swarmline {

StoreThread::StoreThread(Runtime& runtime) : runtime_(runtime), thread_([this] { work(); }) {}

StoreThread::~StoreThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StoreThread::run(Call call, Done done) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back({std::move(call), guard_.wrap(std::move(done))});
  }
  wake_.notify_one();
}

void StoreThread::work() {
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
      if (stopping_) return;
      entry = std::move(calls_.front());
      calls_.pop_front();
    }
    Result<void> result = entry.call();
    entry.call = {};  // what it holds goes before its end is said
    runtime_.post([done = std::move(entry.done), result = std::move(result)]() mutable {
      done(std::move(result));
    });
  }
}

}  // namespace swarmline
