#include "engine/store/embedded_store.h"

#include <utility>

#include "engine/store/run_lock.h"

namespace swarmline {

namespace {

class EmbeddedStore final : public ControlStore {
 public:
  explicit EmbeddedStore(const std::string& run_folder)
      : path_(run_folder + "/journal.sqlite"), lock_(run_folder + "/coordinator.lock") {}

  Result<bool> try_lead(const std::string& who) override {
    auto leads = lock_.try_acquire(who);
    if (!leads || !*leads || journal_) return leads;
    auto journal = open_sqlite_journal(path_);
    if (!journal) {
      lock_.release();
      return std::unexpected(std::move(journal).error());
    }
    journal_ = std::move(*journal);
    return true;
  }

  Result<std::optional<std::string>> leader() override { return lock_.holder(); }
  Result<void> renew() override { return {}; }
  Duration renewal_period() const override { return {}; }

  void release() override {
    journal_.reset();
    lock_.release();
  }

  Result<Journal*> journal() override {
    if (journal_) return journal_.get();
    return fail(ErrorCode::kRefused, "this process does not lead the run");
  }

 private:
  std::string path_;
  RunLock lock_;
  std::unique_ptr<Journal> journal_;
};

}  // namespace

std::unique_ptr<ControlStore> open_embedded_store(const std::string& run_folder) {
  return std::make_unique<EmbeddedStore>(run_folder);
}

}  // namespace swarmline
