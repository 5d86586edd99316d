// A network of which connections have a bulk link before anybody sees them: what peers say to each
// other of theirs (pipeline/stage/common/peer_links.h) both ends hear here at once.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/callback_guard.h"
#include "engine/net/bulk/bulk_connection.h"
#include "engine/net/bulk/bulk_factory.h"

namespace swarmline {

// Accepted ends that wait for the end that dialled, by the addresses of both.
struct BulkPair {
  std::function<void(const std::shared_ptr<BulkConnection>&)> joined;
  std::function<void()> begin;  // it may be a stream of another one's link
  int turns = 0;                // that others have waited meanwhile
};
using BulkPairs = std::map<std::string, BulkPair>;

// An accepted connection that may be started before it has a user, since its first frame may say
// that it is a stream of another one's link. Who starts it later hears then what has come.
class BegunConnection final : public Connection,
                              public std::enable_shared_from_this<BegunConnection> {
 public:
  explicit BegunConnection(std::shared_ptr<BulkConnection> beneath)
      : beneath_(std::move(beneath)) {}
  void begin() {
    if (std::exchange(begun_, true)) return;
    beneath_->start({.on_frame =
                         [self = shared_from_this()](Frame frame) {
                           if (!self->handlers_) return self->waiting_.push_back(std::move(frame));
                           self->handlers_->on_frame(std::move(frame));
                         },
                     .on_closed =
                         [self = shared_from_this()](const Error& error) {
                           const auto handlers = std::exchange(self->handlers_, std::nullopt);
                           if (handlers) handlers->on_closed(error);
                         },
                     .on_arriving =
                         [self = shared_from_this()](const Arrival& arrival) {
                           if (self->handlers_ && self->handlers_->on_arriving)
                             self->handlers_->on_arriving(arrival);
                         }});
  }
  void start(Handlers handlers) override {
    if (!std::exchange(begun_, true)) return beneath_->start(std::move(handlers));
    handlers_ = std::move(handlers);
    for (Frame& frame : std::exchange(waiting_, {})) handlers_->on_frame(std::move(frame));
  }
  void believe(const ConnectionBounds& bounds) override { beneath_->believe(bounds); }
  void send(Frame frame) override { beneath_->send(std::move(frame)); }
  void send_lent(Frame frame) override { beneath_->send_lent(std::move(frame)); }
  void close() override { beneath_->close(); }
  std::uint64_t unsent_bytes() const override { return beneath_->unsent_bytes(); }
  Counters counters() const override { return beneath_->counters(); }
  std::string remote() const override { return beneath_->remote(); }
  std::optional<KeyHash> peer_key() const override { return beneath_->peer_key(); }
  std::string admitted_as() const override { return beneath_->admitted_as(); }
  bool shares_memory() const override { return beneath_->shares_memory(); }
  std::string local_host() const override { return beneath_->local_host(); }
  Ends ends() const override { return beneath_->ends(); }

 private:
  std::shared_ptr<BulkConnection> beneath_;
  std::optional<Handlers> handlers_;
  std::vector<Frame> waiting_;
  bool begun_ = false;
};

class BulkNetwork final : public Network {
 public:
  BulkNetwork(AsioRuntime& runtime, std::unique_ptr<Network> beneath, BulkPairs& pairs,
              std::string way, const BulkDoorOptions& options)
      : runtime_(runtime),
        beneath_(std::move(beneath)),
        pairs_(pairs),
        way_(std::move(way)),
        door_(make_bulk_door(runtime, *beneath_, options)) {
    door_->allow({.ways = {way_}, .trusted = {*IpRange::parse("127.0.0.0/8")}});
  }

  Result<Address> listen(const Address& address, Accepted on_accepted) override {
    return beneath_->listen(address, [this, on_accepted](std::shared_ptr<Connection> accepted) {
      const auto end = door_->over(std::move(accepted));
      const auto seen = std::make_shared<BegunConnection>(end);
      const auto ends = end->ends();
      pairs_[ends.other + ends.own] = {
          .joined =
              [end, seen, on_accepted, this](const std::shared_ptr<BulkConnection>& dialled) {
                EXPECT_TRUE(dialled->take_answer(end->answer(dialled->offer())).has_value());
                when_made(end, [seen, on_accepted] { on_accepted(seen); });
              },
          .begin = [seen] { seen->begin(); }};
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
    const auto joined = std::move(other->second.joined);
    pairs_.erase(other);
    joined(dialled);
    when_made(dialled, std::move(then));
  }
  void when_made(const std::shared_ptr<BulkConnection>& end, std::function<void()> then) {
    if (end->way() == way_) return then();
    if (way_ == "streams") begin_streams();
    later([this, end, then] { when_made(end, then); });
  }
  // Who has dialled each of them has not come for it: they are streams of the links being made.
  void begin_streams() {
    constexpr int kTurns = 8;
    for (auto& [ends, pair] : pairs_)
      if (++pair.turns == kTurns) pair.begin();
    std::erase_if(pairs_, [](const auto& entry) { return entry.second.turns == kTurns; });
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
