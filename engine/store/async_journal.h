// A journal as a coordinator writes it: what is to be done with it is done in order, elsewhere, and
// its end is said later, so that no heartbeat waits for a disk or for etcd.
//   Backends:  JournalThread (a thread of its own), ImmediateJournal (tests), the simulated one
//              (sim/doors/sim_journal.h: virtual time, errors, silence).
//   Ownership: the journal outlives it. What is given to run() is kept until `done` was called, or
//              this is destroyed: then the task under way ends first, the others never begin.
//   Thread:    control thread; a task runs on another one, `done` on the control thread.
//   Errors:    those of journal.h, as the task returned them.
//   Bounds:    whoever runs tasks bounds them: a coordinator has one under way.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "engine/store/journal.h"

namespace swarmline {

class AsyncJournal {
 public:
  using Task = std::function<Result<void>(Journal&)>;
  using Done = std::function<void(Result<void>)>;

  virtual ~AsyncJournal() = default;
  void run(Task task, Done done) {
    ++running_;
    begin(std::move(task), [this, done = std::move(done)](Result<void> result) {
      --running_;
      done(std::move(result));
      if (running_ > 0) return;
      for (auto& waiting : std::exchange(waiting_, {})) waiting();
    });
  }
  bool is_idle() const { return running_ == 0; }
  // Once nothing is under way: at once, or after the `done` of the last task.
  void when_idle(std::function<void()> then) {
    if (is_idle()) return then();
    waiting_.push_back(std::move(then));
  }
  // For who begins, or reads what another process wrote: at once, in the calling thread.
  Journal& at_once() {
    SWARMLINE_CHECK(is_idle());
    return journal();
  }

 protected:
  // Calls `done` once, on the control thread.
  virtual void begin(Task task, Done done) = 0;
  virtual Journal& journal() = 0;

 private:
  std::uint32_t running_ = 0;
  std::vector<std::function<void()>> waiting_;
};

// Everything at once, inside run().
class ImmediateJournal final : public AsyncJournal {
 public:
  explicit ImmediateJournal(Journal& journal) : journal_(journal) {}

 protected:
  void begin(Task task, Done done) override { done(task(journal_)); }
  Journal& journal() override { return journal_; }

 private:
  Journal& journal_;
};

}  // namespace swarmline
