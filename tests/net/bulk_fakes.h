// Connections and bulk links whose bytes take as long as a seed says, in virtual time; and a
// backend that makes such links.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/net/bulk/bulk_connection.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

struct FakeDelays {
  Runtime& runtime;
  Rng rng;
  Duration most = std::chrono::milliseconds(3);
  Duration next() {
    return Duration(
        static_cast<Duration::rep>(rng.below(static_cast<std::uint64_t>(most.count()))));
  }
};

inline SharedBytes joined(const std::vector<SharedBytes>& parts) {
  std::size_t size = 0;
  for (const SharedBytes& part : parts) size += part.size();
  Buffer whole(size);
  std::size_t at = 0;
  for (const SharedBytes& part : parts) {
    if (!part.empty()) std::memcpy(whole.data() + at, part.data(), part.size());
    at += part.size();
  }
  return SharedBytes(std::move(whole));
}

inline Duration time_of(std::uint64_t bytes, Duration mib_takes) {
  return mib_takes * static_cast<Duration::rep>(bytes) / static_cast<Duration::rep>(kMiB);
}

class DelayedConnection final : public Connection,
                                public std::enable_shared_from_this<DelayedConnection> {
 public:
  DelayedConnection(FakeDelays& delays, Ends ends) : delays_(delays), ends_(std::move(ends)) {}
  void join(const std::shared_ptr<DelayedConnection>& other) { other_ = other; }

  void start(Handlers handlers) override { handlers_ = std::move(handlers); }
  void forget() { handlers_ = {}; }  // as a network that ends
  void believe(const ConnectionBounds&) override {}
  void send(Frame frame) override {
    if (frame.payload_bytes() > 0) frame.payload = {joined(frame.payload)};
    counters_.bytes_sent += frame.wire_bytes();
    const std::uint64_t bytes = frame.wire_bytes();
    later(bytes, [frame = std::move(frame)](DelayedConnection& other) {
      other.counters_.bytes_received += frame.wire_bytes();
      if (const auto handlers = other.handlers_; handlers.on_frame) handlers.on_frame(frame);
    });
  }
  void close() override {
    if (std::exchange(closed_, true)) return;
    later(0, [](DelayedConnection& other) { other.end({ErrorCode::kPeerGone, "closed"}); });
    delays_.runtime.call_after(delays_.most, [self = shared_from_this()] {
      self->end({ErrorCode::kStopped, "closed by this end"});
    });
  }
  std::uint64_t unsent_bytes() const override { return unsent; }
  Counters counters() const override { return counters_; }
  std::string remote() const override { return ends_.other; }
  Ends ends() const override { return ends_; }
  bool is_relayed() const override { return relayed; }
  std::optional<KeyHash> peer_key() const override { return key; }

  bool relayed = false;
  std::uint64_t unsent = 0;                // as it says
  Duration mib_takes{};                    // that is sent
  std::optional<KeyHash> key = KeyHash{};  // that its other end has shown

 private:
  void later(std::uint64_t bytes, std::function<void(DelayedConnection&)> what) {
    last_ = std::max(last_ + Duration(1), delays_.runtime.now() + delays_.next()) +
            time_of(bytes, mib_takes);
    delays_.runtime.call_at(last_, [weak = other_, what = std::move(what)] {
      if (const auto other = weak.lock()) what(*other);
    });
  }
  void end(Error error) {
    closed_ = true;
    const Handlers handlers = std::exchange(handlers_, {});
    if (handlers.on_closed) handlers.on_closed(std::move(error));
  }

  FakeDelays& delays_;
  const Ends ends_;
  std::weak_ptr<DelayedConnection> other_;
  Handlers handlers_;
  Counters counters_;
  Instant last_{};
  bool closed_ = false;
};

class FakeLink final : public BulkLink, public std::enable_shared_from_this<FakeLink> {
 public:
  explicit FakeLink(FakeDelays& delays) : delays_(delays) {}
  void join(const std::shared_ptr<FakeLink>& other) { other_ = other; }

  void start(Handlers handlers) override { handlers_ = std::move(handlers); }
  void forget() { handlers_ = {}; }
  void send(std::vector<SharedBytes> payload) override {
    if (holds) return;
    SharedBytes whole = joined(payload);
    if (spoils) {
      Buffer other = Buffer::copy_of(whole.view());
      other.data()[other.size() / 2] ^= std::byte{1};
      whole = SharedBytes(std::move(other));
    }
    const std::size_t half = whole.size() / 2;
    for (const SharedBytes& part : {whole.slice(0, half), whole.slice(half, whole.size() - half)})
      at_other([part](FakeLink& other) { other.come(part); }, part.size());
    at_other([](FakeLink& other) {
      const auto self = other.other_.lock();
      if (self && self->handlers_.on_sent) self->handlers_.on_sent();
    });
  }
  void receive(Buffer into) override {
    asked_.push_back(std::move(into));
    delays_.runtime.post([self = shared_from_this()] { self->fill(); });
  }
  void close() override {
    if (std::exchange(closed_, true)) return;
    at_other([](FakeLink& other) { other.break_off(ErrorCode::kPeerGone); });
  }
  bool needs_checksums() const override { return true; }
  bool is_closed() const { return closed_; }

  void break_off(ErrorCode code) {
    if (std::exchange(closed_, true)) return;
    const Handlers handlers = handlers_;
    if (handlers.on_closed) handlers.on_closed({code, "the link broke"});
  }

  Duration mib_takes{};  // that is sent
  bool holds = false;    // nothing that is sent ever leaves
  bool spoils = false;   // a bit of each payload is another one

 private:
  void at_other(std::function<void(FakeLink&)> what, std::size_t bytes = 0) {
    last_ = std::max(last_ + Duration(1), delays_.runtime.now() + delays_.next()) +
            time_of(bytes, mib_takes);
    delays_.runtime.call_at(last_, [weak = other_, what = std::move(what)] {
      if (const auto other = weak.lock()) what(*other);
    });
  }
  void come(const SharedBytes& bytes) {
    const BytesView view = bytes.view();
    there_.insert(there_.end(), view.begin(), view.end());
    fill();
  }
  void fill() {
    while (!closed_ && !asked_.empty()) {
      Buffer& first = asked_.front();
      const std::size_t count = std::min(first.size() - filled_, there_.size());
      std::copy_n(there_.begin(), count, first.data() + filled_);
      there_.erase(there_.begin(), there_.begin() + static_cast<std::ptrdiff_t>(count));
      filled_ += count;
      if (filled_ < first.size()) {
        if (count > 0 && handlers_.on_arriving) handlers_.on_arriving(filled_);
        return;
      }
      Buffer whole = std::move(first);
      asked_.pop_front();
      filled_ = 0;
      handlers_.on_received(std::move(whole));
    }
  }

  FakeDelays& delays_;
  std::weak_ptr<FakeLink> other_;
  Handlers handlers_;
  std::deque<std::byte> there_;
  std::deque<Buffer> asked_;
  std::size_t filled_ = 0;
  Instant last_{};
  bool closed_ = false;
};

// Both ends of every link, by who asked for it first.
struct FakeLinks {
  std::vector<std::shared_ptr<FakeLink>> made;  // the awaiting end, then the other one
  std::map<std::string, BulkBackend::Made> awaited;
  std::array<Duration, 2> mib_takes{};  // of those that are made: from the awaiting end, to it
  bool hold = false;                    // the same
};

class FakeBackend final : public BulkBackend {
 public:
  FakeBackend(FakeDelays& delays, FakeLinks& links) : delays_(delays), links_(links) {}
  std::string_view name() const override { return "fake"; }
  Result<void> is_viable() override { return {}; }
  std::string address(const BulkPath&) override { return "here"; }
  bool reaches(const BulkPath&, std::string_view address) override { return address == "here"; }
  Result<BulkWay> await(const BulkPath&, const BulkWay&, Duration, Made on_made) override {
    const std::string secret(kBulkSecretBytes, static_cast<char>('a' + links_.awaited.size()));
    links_.awaited[secret] = std::move(on_made);
    return BulkWay{.backend = "fake", .address = "here", .secret = secret};
  }
  void meet(const BulkPath&, const BulkWay& answered, Duration, Made on_made) override {
    const auto first = std::make_shared<FakeLink>(delays_);
    const auto second = std::make_shared<FakeLink>(delays_);
    first->mib_takes = links_.mib_takes[0];
    second->mib_takes = links_.mib_takes[1];
    first->holds = second->holds = links_.hold;
    first->join(second);
    second->join(first);
    links_.made.insert(links_.made.end(), {first, second});
    delays_.runtime.call_after(delays_.next(), [first, awaiting = links_.awaited[answered.secret]] {
      awaiting(std::shared_ptr<BulkLink>(first));
    });
    delays_.runtime.call_after(delays_.next(), [second, on_made = std::move(on_made)] {
      on_made(std::shared_ptr<BulkLink>(second));
    });
  }

 private:
  FakeDelays& delays_;
  FakeLinks& links_;
};

}  // namespace swarmline
