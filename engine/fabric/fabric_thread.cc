#include "engine/fabric/fabric_thread.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace swarmline {
namespace {

constexpr Duration kPauseMin = std::chrono::microseconds(20);
constexpr Duration kPauseMax = std::chrono::milliseconds(1);

}  // namespace

FabricThread::FabricThread() : thread_([this] { run_all(); }) {}

FabricThread::~FabricThread() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

void FabricThread::run(Job job, With with) {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return;
  jobs_.emplace_back(std::move(job), with);
  wake_.notify_all();
}

void FabricThread::let_go() {
  std::deque<std::pair<Job, With>> dropped;
  std::unique_lock lock(mutex_);
  cancelled_ = true;
  dropped.swap(jobs_);
  wake_.notify_all();
  const bool has_let_go = idle_.wait_for(lock, kLetGoPatience, [this] { return !has_memory_; });
  SWARMLINE_CHECK_MSG(has_let_go,
                      std::string("the device does not let go of memory that a fabric's group was "
                                  "given: nobody can use it any more"));
}

void FabricThread::finish(Job last) {
  const std::lock_guard lock(mutex_);
  SWARMLINE_CHECK(cancelled_);
  last_ = std::move(last);
  finishing_ = true;
  wake_.notify_all();
}

bool FabricThread::has_ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

bool FabricThread::is_cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

bool FabricThread::pause(Duration time) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, time, [this] { return cancelled_; });
}

void FabricThread::rest(Duration time) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, time, [] { return false; });
}

void FabricThread::run_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return finishing_ || !jobs_.empty(); });
    if (jobs_.empty()) break;
    auto [job, with] = std::move(jobs_.front());
    jobs_.pop_front();
    has_memory_ = with == With::kMemory;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    has_memory_ = false;
    idle_.notify_all();
  }
  const Job last = std::exchange(last_, nullptr);
  lock.unlock();
  if (last) last();
  lock.lock();
  ended_ = true;
}

bool poll(FabricThread& thread, const std::function<bool()>& ready) {
  Duration next = kPauseMin;
  while (!ready()) {
    if (!thread.pause(next)) return false;
    next = std::min(2 * next, kPauseMax);
  }
  return true;
}

void FabricThreadKeeper::keep(std::unique_ptr<FabricThread> thread) {
  std::erase_if(ending_, [](const auto& ending) { return ending->has_ended(); });
  if (ending_.size() >= kEndingMax) ending_.pop_front();
  ending_.push_back(std::move(thread));
}

}  // namespace swarmline
