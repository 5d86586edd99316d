// Sessions without a network: a channel that keeps what is said over it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipeline/coordinator/members/session_table.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

class FakeConnection final : public Connection {
 public:
  void start(Handlers) override {}
  void believe(const ConnectionBounds&) override {}
  void send(Frame) override {}
  void close() override {}
  std::uint64_t unsent_bytes() const override { return 0; }
  Counters counters() const override { return {.bytes_sent = 10, .bytes_received = 5}; }
  std::string remote() const override { return from; }
  std::optional<KeyHash> peer_key() const override { return key; }
  std::string admitted_as() const override { return as; }

  std::string from = "nowhere";
  std::optional<KeyHash> key;  // of an authenticated link
  std::string as;              // what it was admitted as
};

class FakeChannel final : public RpcChannel {
 public:
  void start(Handlers) override {}
  void call(Frame, Duration, Reply) override {}
  void notify(Frame message) override { said.push_back(std::move(message)); }
  void close() override { closed = true; }
  Connection& connection() override { return connection_; }

  void prove(const KeyHash& key) { connection_.key = key; }
  void admit_as(const std::string& scope) { connection_.as = scope; }
  void comes_from(const std::string& remote) { connection_.from = remote; }

  std::vector<Frame> said;
  bool closed = false;

 private:
  FakeConnection connection_;
};

struct FakeSession {
  std::shared_ptr<FakeChannel> channel = std::make_shared<FakeChannel>();
  SessionPtr session = std::make_shared<Session>(Session{.channel = channel, .seat = {}});

  std::vector<MessageKind> kinds() const {
    std::vector<MessageKind> kinds;
    for (const Frame& frame : channel->said) kinds.push_back(kind_of(frame));
    return kinds;
  }
};

}  // namespace swarmline
