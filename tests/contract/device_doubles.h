// Doubles of a device's libraries on this process's memory, with a thread where a device has a
// stream of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/result.h"
#include "engine/fabric/device_stream.h"

namespace swarmline {

// Calls that fail once each, by their names, the next time that they are made.
class FailingCalls {
 public:
  void fail_next(std::string call) {
    const std::lock_guard lock(mutex_);
    call_ = std::move(call);
  }
  bool has_failed() {
    const std::lock_guard lock(mutex_);
    return call_.empty();
  }
  Result<void> check(const std::string& call) {
    const std::lock_guard lock(mutex_);
    if (call != call_) return {};
    call_.clear();
    return fail(ErrorCode::kDevice, "the double fails in " + call);
  }

 private:
  std::mutex mutex_;
  std::string call_;
};

class DoubleStream final : public DeviceStream {
 public:
  explicit DoubleStream(FailingCalls& calls) : calls_(calls), thread_([this] { run(); }) {}
  ~DoubleStream() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      wake_.notify_all();
    }
    thread_.join();
  }
  void* native() override { return nullptr; }
  Result<bool> has_ended() override {
    SWARMLINE_TRY(calls_.check("has_ended"));
    const std::lock_guard lock(mutex_);
    return work_.empty() && !runs_;
  }
  void put(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    wake_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return ends_ || !work_.empty(); });
      if (work_.empty()) return;
      const auto work = std::move(work_.front());
      work_.pop_front();
      runs_ = true;
      lock.unlock();
      work();
      lock.lock();
      runs_ = false;
    }
  }

  FailingCalls& calls_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;
  bool runs_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace swarmline
