// A network of which connections have a bulk link before anybody sees them: what peers say to each
// other of theirs (pipeline/stage/common/peer_links.h) both ends hear here at once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/callback_guard.h"
#include "engine/net/bulk/bulk_connection.h"
#include "engine/net/bulk/bulk_factory.h"

namespace swarmline {

// Accepted ends that wait for the end that dialled, by the addresses of both.
using BulkPairs =
    std::map<std::string, std::function<void(const std::shared_ptr<BulkConnection>&)>>;

class BulkNetwork final : public Network {
 public:
  BulkNetwork(AsioRuntime& runtime, std::unique_ptr<Network> beneath, BulkPairs& pairs,
              std::string way, const BulkDoorOptions& options)
      : runtime_(runtime),
        beneath_(std::move(beneath)),
        pairs_(pairs),
        way_(std::move(way)),
        door_(make_bulk_door(runtime, options)) {
    door_->allow({.ways = {way_}, .trusted = {*IpRange::parse("127.0.0.0/8")}});
  }

  Result<Address> listen(const Address& address, Accepted on_accepted) override {
    return beneath_->listen(address, [this, on_accepted](std::shared_ptr<Connection> accepted) {
      const auto end = door_->over(std::move(accepted));
      const auto ends = end->ends();
      pairs_[ends.other + ends.own] = [end, on_accepted,
                                       this](const std::shared_ptr<BulkConnection>& dialled) {
        EXPECT_TRUE(dialled->take_answer(end->answer(dialled->offer())).has_value());
        when_made(end, [end, on_accepted] { on_accepted(end); });
      };
    });
  }
  void connect(const Address& address, Duration timeout, Connected on_connected) override {
    beneath_->connect(address, timeout, [this, on_connected](auto made) {
      if (!made) return on_connected(std::unexpected(made.error()));
      const auto end = door_->over(std::move(*made));
      meet(end, [end, on_connected] { on_connected(std::shared_ptr<Connection>(end)); });
    });
  }
  void meet(const Meeting& meeting, Duration timeout, Connected on_connected) override {
    beneath_->meet(meeting, timeout, std::move(on_connected));
  }
  void stop_listening() override { beneath_->stop_listening(); }

 private:
  void meet(const std::shared_ptr<BulkConnection>& dialled, std::function<void()> then) {
    const auto ends = dialled->ends();
    const auto other = pairs_.find(ends.own + ends.other);
    if (other == pairs_.end()) return later([this, dialled, then] { meet(dialled, then); });
    const auto joined = std::move(other->second);
    pairs_.erase(other);
    joined(dialled);
    when_made(dialled, std::move(then));
  }
  void when_made(const std::shared_ptr<BulkConnection>& end, std::function<void()> then) {
    if (end->way() == way_) return then();
    later([this, end, then] { when_made(end, then); });
  }
  void later(std::function<void()> fn) {
    runtime_.call_after(std::chrono::milliseconds(1), guard_.wrap(std::move(fn)));
  }

  AsioRuntime& runtime_;
  std::unique_ptr<Network> beneath_;
  BulkPairs& pairs_;
  const std::string way_;
  std::unique_ptr<BulkDoor> door_;
  CallbackGuard guard_;
};

}  // namespace swarmline
