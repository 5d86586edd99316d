// The thread on which one group asks a device's libraries, whose calls take up to seconds: jobs in
// order, which the group's end can stop.
//   Ownership: jobs share what they work on; a FabricThread ends with the last one.
//   Thread:    control thread; is_cancelled() and pause() within jobs.
//   Errors:    a job with memory that does not end kLetGoPatience after it was asked to is a CHECK:
//              it may write to memory that its owner uses for something else.
//   Bounds:    as many jobs as its owner asks for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/units.h"

namespace swarmline {

class FabricThread {
 public:
  using Job = std::function<void()>;
  static constexpr Duration kLetGoPatience = std::chrono::seconds(30);

  FabricThread();
  ~FabricThread();  // waits for the last job
  FabricThread(const FabricThread&) = delete;
  FabricThread& operator=(const FabricThread&) = delete;

  // kMemory: it works on memory of the group's owner.
  enum class With : std::uint8_t { kMemory, kNothing };
  void run(Job job, With with = With::kNothing);
  // No job with memory runs any more when it returns, and of the others at most the one that was
  // under way, but for the last one.
  void let_go();
  // After let_go(): this job still, and the thread ends.
  void finish(Job last);
  bool has_ended() const;

  bool is_cancelled() const;  // by let_go()
  // False, sooner: cancelled.
  bool pause(Duration time);
  // For the last job, which nothing cancels.
  void rest(Duration time);

 private:
  void run_all();

  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<std::pair<Job, With>> jobs_;  // under mutex_, as all below
  Job last_;
  bool has_memory_ = false;  // the job under way
  bool cancelled_ = false, finishing_ = false, ended_ = false;
  std::thread thread_;
};

// Waits until `ready` says so, with pauses that grow: true. False: cancelled.
bool poll(FabricThread& thread, const std::function<bool()>& ready);

// Keeps threads whose groups are gone until they have ended.
//   Thread: control thread. Bounds: kEndingMax; one more waits for the first one.
class FabricThreadKeeper {
 public:
  static constexpr std::size_t kEndingMax = 8;
  void keep(std::unique_ptr<FabricThread> thread);

 private:
  std::deque<std::unique_ptr<FabricThread>> ending_;
};

}  // namespace swarmline
