#include "engine/store/etcd_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/store/etcd_journal.h"
#include "engine/store/journal_thread.h"
#include "engine/store/store_thread.h"

namespace swarmline {

namespace {

// A renewal that fails leaves time for another one before the lease is over.
constexpr int kRenewalsPerLease = 3;

std::string prefix_of(const std::string& run) {
  return "/swarmline/" + run + "/";
}

class EtcdStore final : public ControlStore {
 public:
  EtcdStore(Runtime& runtime, const std::vector<EtcdEndpoint>& endpoints, const std::string& run,
            Duration lease, const EtcdTls& tls)
      : runtime_(runtime),
        client_(endpoints, std::min(kEtcdDeadline, lease), tls),
        journal_client_(endpoints, std::min(kEtcdDeadline, lease), tls),
        renewing_client_(endpoints, std::min(kEtcdDeadline, lease) / kRenewalsPerLease, tls),
        prefix_(prefix_of(run)),
        leader_key_(prefix_ + "leader"),
        lease_time_(lease) {}
  ~EtcdStore() override { release(); }

  Result<bool> try_lead(const std::string& who) override {
    if (journal_) return true;
    if (lease_ == 0) {
      auto granted = client_.grant_lease(lease_time_);
      if (!granted) return std::unexpected(granted.error());
      lease_ = *granted;
    } else if (auto alive = client_.keep_alive(lease_); !alive) {
      if (alive.error().code == ErrorCode::kRefused) lease_ = 0;
      return std::unexpected(alive.error());
    }
    EtcdWrites claim;
    claim.put(leader_key_, who, lease_);
    auto claimed = client_.write_if(leader_key_, 0, std::move(claim));
    if (!claimed) {
      if (claimed.error().code == ErrorCode::kRefused) lease_ = 0;  // it is over
      return std::unexpected(claimed.error());
    }
    const auto now = client_.range(leader_key_, "", 1);
    if (!now) return std::unexpected(now.error());
    // Not by what `claimed` says: when an answer is lost it is sent again, and finds its own key.
    if (now->entries.empty() || now->lease != lease_) return false;
    auto journal = open_etcd_journal(journal_client_, prefix_, leader_key_, now->create_revision);
    if (!journal) return std::unexpected(journal.error());
    journal_ = std::move(*journal);
    writer_.emplace(runtime_, *journal_);
    renewals_.emplace(runtime_);
    return true;
  }

  Result<std::optional<std::string>> leader() override {
    auto found = client_.range(leader_key_, "", 1);
    if (!found) return std::unexpected(found.error());
    if (found->entries.empty()) return std::nullopt;
    return std::move(found->entries.front().value);
  }

  void renew(Renewed done) override {
    if (!renewals_) return runtime_.post([done = std::move(done)] { done(not_the_leader()); });
    renewals_->run([this, lease = lease_] { return renewing_client_.keep_alive(lease); },
                   std::move(done));
  }
  Duration renewal_period() const override { return lease_time_ / kRenewalsPerLease; }
  Duration lease_time() const override { return lease_time_; }

  void release() override {
    renewals_.reset();
    writer_.reset();
    journal_.reset();
    // Not heard: the lease ends by itself.
    if (const auto lease = std::exchange(lease_, 0); lease != 0)
      static_cast<void>(client_.revoke_lease(lease));
  }

  Result<AsyncJournal*> journal() override {
    if (writer_) return &*writer_;
    return not_the_leader();
  }

 private:
  static std::unexpected<Error> not_the_leader() {
    return fail(ErrorCode::kRefused, "this process does not lead the run");
  }

  Runtime& runtime_;
  EtcdClient client_;           // of the control thread
  EtcdClient journal_client_;   // of the journal's
  EtcdClient renewing_client_;  // of renewals: no write holds them up
  std::string prefix_;
  std::string leader_key_;
  Duration lease_time_;
  std::int64_t lease_ = 0;
  std::unique_ptr<Journal> journal_;
  std::optional<JournalThread> writer_;
  std::optional<StoreThread> renewals_;
};

}  // namespace

std::unique_ptr<ControlStore> open_etcd_store(Runtime& runtime, std::vector<EtcdEndpoint> endpoints,
                                              const std::string& run, Duration lease,
                                              const EtcdTls& tls) {
  return std::make_unique<EtcdStore>(runtime, endpoints, run, lease, tls);
}

Result<std::unique_ptr<JournalReader>> read_etcd_journal(std::vector<EtcdEndpoint> endpoints,
                                                         const std::string& run,
                                                         const EtcdTls& tls) {
  return open_etcd_journal_to_read(
      std::make_unique<EtcdClient>(std::move(endpoints), kEtcdDeadline, tls), prefix_of(run));
}

}  // namespace swarmline
