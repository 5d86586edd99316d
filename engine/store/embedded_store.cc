#include "engine/store/embedded_store.h"

#include <optional>
#include <utility>

#include "engine/store/files.h"
#include "engine/store/journal_thread.h"
#include "engine/store/run_lock.h"

namespace swarmline {

namespace {

std::string journal_of(const std::string& run_folder) {
  return run_folder + "/journal.sqlite";
}

class EmbeddedStore final : public ControlStore {
 public:
  EmbeddedStore(Runtime& runtime, const std::string& run_folder)
      : runtime_(runtime), path_(journal_of(run_folder)), lock_(run_folder + "/coordinator.lock") {}

  Result<bool> try_lead(const std::string& who) override {
    auto leads = lock_.try_acquire(who);
    if (!leads || !*leads || journal_) return leads;
    auto journal = open_sqlite_journal(path_);
    if (!journal) {
      lock_.release();
      return std::unexpected(std::move(journal).error());
    }
    journal_ = std::move(*journal);
    writer_.emplace(runtime_, *journal_);
    return true;
  }

  Result<std::optional<std::string>> leader() override { return lock_.holder(); }
  void renew(Renewed done) override {
    runtime_.post([done = std::move(done)] { done({}); });
  }
  Duration renewal_period() const override { return {}; }
  Duration lease_time() const override { return {}; }

  void release() override {
    writer_.reset();
    journal_.reset();
    lock_.release();
  }

  Result<AsyncJournal*> journal() override {
    if (writer_) return &*writer_;
    return fail(ErrorCode::kRefused, "this process does not lead the run");
  }

 private:
  Runtime& runtime_;
  std::string path_;
  RunLock lock_;
  std::unique_ptr<Journal> journal_;
  std::optional<JournalThread> writer_;
};

}  // namespace

std::unique_ptr<ControlStore> open_embedded_store(Runtime& runtime, const std::string& run_folder) {
  return std::make_unique<EmbeddedStore>(runtime, run_folder);
}

Result<std::unique_ptr<JournalReader>> read_embedded_journal(const std::string& run_folder) {
  const std::string path = journal_of(run_folder);
  if (!file_exists(path)) return nullptr;
  return open_sqlite_journal(path);
}

}  // namespace swarmline
