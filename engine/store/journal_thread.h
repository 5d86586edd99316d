// A journal on a thread of its own: see async_journal.h.
#pragma once

#include <utility>

#include "engine/store/async_journal.h"
#include "engine/store/store_thread.h"

namespace swarmline {

class JournalThread final : public AsyncJournal {
 public:
  JournalThread(Runtime& runtime, Journal& journal) : journal_(journal), thread_(runtime) {}

 protected:
  void begin(Task task, Done done) override {
    thread_.run([this, task = std::move(task)] { return task(journal_); }, std::move(done));
  }
  Journal& journal() override { return journal_; }

 private:
  Journal& journal_;
  StoreThread thread_;
};

}  // namespace swarmline
