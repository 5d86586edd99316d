#include "engine/store/etcd_store.h"

#include <algorithm>
#include <utility>

#include "engine/store/etcd_journal.h"

namespace swarmline {

namespace {

// A renewal that fails leaves time for another one before the lease is over.
constexpr int kRenewalsPerLease = 3;

class EtcdStore final : public ControlStore {
 public:
  EtcdStore(std::vector<EtcdEndpoint> endpoints, const std::string& run, Duration lease)
      : client_(std::move(endpoints), std::min(kEtcdDeadline, lease)),
        prefix_("/swarmline/" + run + "/"),
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
    if (!claimed) return std::unexpected(claimed.error());
    const auto now = client_.range(leader_key_, "", 1);
    if (!now) return std::unexpected(now.error());
    // Not by what `claimed` says: when an answer is lost it is sent again, and finds its own key.
    if (now->entries.empty() || now->lease != lease_) return false;
    auto journal = open_etcd_journal(client_, prefix_, leader_key_, now->create_revision);
    if (!journal) return std::unexpected(journal.error());
    journal_ = std::move(*journal);
    return true;
  }

  Result<std::optional<std::string>> leader() override {
    auto found = client_.range(leader_key_, "", 1);
    if (!found) return std::unexpected(found.error());
    if (found->entries.empty()) return std::nullopt;
    return std::move(found->entries.front().value);
  }

  Result<void> renew() override { return client_.keep_alive(lease_); }
  Duration renewal_period() const override { return lease_time_ / kRenewalsPerLease; }

  void release() override {
    journal_.reset();
    // Not heard: the lease ends by itself.
    if (const auto lease = std::exchange(lease_, 0); lease != 0)
      static_cast<void>(client_.revoke_lease(lease));
  }

  Result<Journal*> journal() override {
    if (journal_) return journal_.get();
    return fail(ErrorCode::kRefused, "this process does not lead the run");
  }

 private:
  EtcdClient client_;
  std::string prefix_;
  std::string leader_key_;
  Duration lease_time_;
  std::int64_t lease_ = 0;
  std::unique_ptr<Journal> journal_;
};

}  // namespace

std::unique_ptr<ControlStore> open_etcd_store(std::vector<EtcdEndpoint> endpoints,
                                              const std::string& run, Duration lease) {
  return std::make_unique<EtcdStore>(std::move(endpoints), run, lease);
}

}  // namespace swarmline
