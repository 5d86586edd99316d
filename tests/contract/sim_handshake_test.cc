// Simulated links between keys: guards are asked what they are asked over TLS, in that order, and
// what may happen to a handshake ends it.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_relay.h"
#include "sim/doors/sim_runtime.h"
#include "tests/harness/mark_expected.h"
#include "tests/net/open_guard.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr SimNodeId kServer = 1, kClient = 2, kRelay = 3;
constexpr Duration kLatency = 1ms;

// Says which of its questions were asked, in order, of both ends.
class TellingGuard final : public LinkGuard {
 public:
  TellingGuard(std::shared_ptr<OpenGuard> guard, std::vector<std::string>& asked)
      : guard_(std::move(guard)), asked_(asked) {}
  const Identity& identity() const override { return guard_->identity(); }
  std::string vouchers() const override { return guard_->vouchers(); }
  std::optional<KeyHash> pinned(const Address& dialled) override {
    asked_.emplace_back("pinned");
    return guard_->pinned(dialled);
  }
  bool vouched(const KeyHash& pinned, const KeyHash& shown,
               const std::string& vouchers) const override {
    asked_.emplace_back("vouched");
    return guard_->vouched(pinned, shown, vouchers);
  }
  std::string opening(const Address& dialled, const LinkFacts& facts) override {
    asked_.emplace_back("opening");
    return guard_->opening(dialled, facts);
  }
  Result<std::string> judge(const Address& dialled, const LinkFacts& facts,
                            const std::string& answer) override {
    asked_.emplace_back("judge");
    return guard_->judge(dialled, facts, answer);
  }
  void admit(const LinkFacts& facts, const std::string& opening, Verdict verdict) override {
    asked_.emplace_back("admit");
    guard_->admit(facts, opening, std::move(verdict));
  }

 private:
  std::shared_ptr<OpenGuard> guard_;
  std::vector<std::string>& asked_;
};

class SimHandshakes : public ::testing::Test {
 protected:
  SimHandshakes() {
    network_.set_guard(kServer, listens_);
    network_.set_guard(kClient, dials_);
    address_ = *network_.node(kServer).listen({"", 0}, [this](auto connection) {
      accepted_ = std::move(connection);
      accepted_at_ = runtime_.now();
      accepted_->start({.on_frame = [this](Frame frame) { frames_.push_back(frame.meta); },
                        .on_closed = [this](Error error) { closed_ = std::move(error); }});
    });
  }
  void dial(Duration timeout = 60s) {
    began_ = runtime_.now();
    network_.node(kClient).connect(address_, timeout,
                                   [this](auto made) { answered(std::move(made)); });
  }
  void answered(Result<std::shared_ptr<Connection>> made) {
    ASSERT_FALSE(answer_.has_value()) << "called twice";
    answered_at_ = runtime_.now();
    answer_ = made ? Result<void>() : std::unexpected(made.error());
    if (!made) return;
    connection_ = *made;
    connection_->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
  }
  bool until_answered() {
    return runtime_.run_until([this] { return answer_.has_value(); }, 100s);
  }
  std::string refusal() const {
    return answer_ && !*answer_ ? answer_->error().what : std::string("not refused");
  }

  SimRuntime runtime_{1};
  SimNetwork network_{runtime_, {.link = {.latency = kLatency}}};
  std::shared_ptr<OpenGuard> listens_ = std::make_shared<OpenGuard>();
  std::shared_ptr<OpenGuard> dials_ = std::make_shared<OpenGuard>();
  Address address_;
  std::shared_ptr<Connection> accepted_, connection_;
  std::vector<std::string> frames_;
  std::optional<Error> closed_;
  std::optional<Result<void>> answer_;
  Instant began_, accepted_at_, answered_at_;
};

TEST_F(SimHandshakes, EachEndKnowsTheOthersKeyAfterTwoRoundTripsMore) {
  dial();
  ASSERT_TRUE(until_answered());
  ASSERT_TRUE(connection_ && accepted_) << refusal();
  EXPECT_EQ(connection_->peer_key(), listens_->identity().hash());
  EXPECT_EQ(accepted_->peer_key(), dials_->identity().hash());
  EXPECT_EQ(connection_->admitted_as(), "listener");
  EXPECT_EQ(accepted_->admitted_as(), "dialler");
  EXPECT_EQ(answered_at_ - began_, 6 * kLatency);
  EXPECT_EQ(accepted_at_ - began_, 5 * kLatency);
  ASSERT_EQ(listens_->accepted.size(), 1U);
  EXPECT_EQ(listens_->accepted[0].binding, dials_->dialled.at(0).binding);
  connection_->send(Frame{.kind = 1, .meta = "after it"});
  runtime_.run_for(1s);
  EXPECT_EQ(frames_, std::vector<std::string>{"after it"});
  EXPECT_EQ(network_.handshakes().made, 2U);
}

TEST_F(SimHandshakes, WhatBindsALinkIsOfThatLinkAlone) {
  for (int i = 0; i < 2; ++i) {
    answer_.reset();
    dial();
    ASSERT_TRUE(until_answered());
  }
  EXPECT_NE(listens_->accepted.at(0).binding, listens_->accepted.at(1).binding);
  EXPECT_EQ(listens_->accepted[1].binding, dials_->dialled.at(1).binding);
}

TEST_F(SimHandshakes, GuardsAreAskedWhatTheyAreAskedOverTls) {
  listens_->says_beside = dials_->believes = "it came after that one";
  dials_->pin = Identity::make().hash();
  std::vector<std::string> asked[2];
  network_.set_guard(kServer, std::make_shared<TellingGuard>(listens_, asked[0]));
  network_.set_guard(kClient, std::make_shared<TellingGuard>(dials_, asked[0]));
  dial();
  ASSERT_TRUE(until_answered());
  ASSERT_TRUE(connection_ != nullptr) << refusal();

  AsioRuntime real;
  TcpNetwork server(real, {.guard = std::make_shared<TellingGuard>(listens_, asked[1])});
  TcpNetwork client(real, {.guard = std::make_shared<TellingGuard>(dials_, asked[1])});
  std::shared_ptr<Connection> there, here;
  const auto keep = [](std::shared_ptr<Connection>& kept) {
    return [&kept](std::shared_ptr<Connection> made) {
      kept = std::move(made);
      kept->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
    };
  };
  const auto bound = server.listen({"127.0.0.1", 0}, keep(there));
  ASSERT_TRUE(bound.has_value());
  client.connect(*bound, 10s, [&](Result<std::shared_ptr<Connection>> made) { keep(here)(*made); });
  ASSERT_TRUE(real.run_until([&] { return there && here; }, 20s));
  EXPECT_EQ(asked[0], asked[1]);
  EXPECT_EQ(asked[0], (std::vector<std::string>{"pinned", "vouched", "opening", "admit", "judge"}));
}

TEST_F(SimHandshakes, AnotherKeyIsRefusedBeforeAnythingIsSaid) {
  const MarkExpected rule("sim.another_key_shown");
  dials_->pin = Identity::make().hash();
  dial();
  ASSERT_TRUE(until_answered());
  EXPECT_EQ(answer_->error().code, ErrorCode::kCorrupt);
  EXPECT_NE(refusal().find(short_text(*dials_->pin)), std::string::npos) << refusal();
  runtime_.run_for(1s);
  EXPECT_TRUE(dials_->dialled.empty() && listens_->accepted.empty());
  EXPECT_EQ(accepted_, nullptr);
  EXPECT_EQ(network_.handshakes().failed, 1U);
}

TEST_F(SimHandshakes, WhoeverIsNotAdmittedHearsWhy) {
  listens_->refusal = "the invite has expired";
  dial();
  ASSERT_TRUE(until_answered());
  EXPECT_EQ(answer_->error().code, ErrorCode::kRefused);
  EXPECT_NE(refusal().find("the invite has expired"), std::string::npos) << refusal();
  EXPECT_EQ(accepted_, nullptr);
  EXPECT_EQ(network_.handshakes().refused, 1U);
}

TEST_F(SimHandshakes, WhoDialsJudgesTheAnswer) {
  dials_->judges = [](const std::string&) -> Result<std::string> {
    return fail(ErrorCode::kRefused, "nobody I know");
  };
  dial();
  ASSERT_TRUE(until_answered());
  EXPECT_NE(refusal().find("nobody I know"), std::string::npos) << refusal();
  runtime_.run_for(1s);
  ASSERT_TRUE(closed_.has_value());
  EXPECT_EQ(closed_->code, ErrorCode::kPeerGone);
}

TEST_F(SimHandshakes, AVerdictMayComeLaterAndNotAfterTheTime) {
  const MarkExpected rule("sim.handshake_late");
  listens_->holds = true;
  dial();
  runtime_.run_for(9s);
  ASSERT_EQ(listens_->held.size(), 1U);
  EXPECT_FALSE(answer_.has_value());
  runtime_.run_for(2s);
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->error().code, ErrorCode::kDeadline);
  listens_->held[0](LinkGuard::Admission{.as = "late", .answer = {}});
  runtime_.run_for(1s);
  EXPECT_EQ(accepted_, nullptr);
}

TEST_F(SimHandshakes, OneThatStallsEndsAtItsDeadlineAndTheNextIsWhole) {
  for (const SimNodeId stalled : {kServer, kClient}) {
    network_.stall_handshakes(stalled, true);
    answer_.reset();
    const std::uint64_t late = network_.handshakes().late;
    dial();
    runtime_.run_for(5s);
    network_.stall_handshakes(stalled, false);
    EXPECT_FALSE(answer_.has_value()) << "what was not said is not said later";
    ASSERT_TRUE(until_answered());
    EXPECT_EQ(answer_->error().code, ErrorCode::kDeadline);
    EXPECT_EQ(answered_at_ - began_, 10s + 2 * kLatency);
    EXPECT_GT(network_.handshakes().late, late);
  }
  EXPECT_EQ(accepted_, nullptr);
  answer_.reset();
  dial();
  ASSERT_TRUE(until_answered());
  EXPECT_TRUE(connection_ != nullptr) << refusal();
}

// Whoever dials has a patience of its own: then the other end is told nothing more, and ends, too.
TEST_F(SimHandshakes, WhoeverGivesUpEndsTheOtherToo) {
  const MarkExpected rule("sim.handshake_given_up");
  listens_->holds = true;
  dial(100ms);
  ASSERT_TRUE(until_answered());
  EXPECT_EQ(answered_at_ - began_, 100ms);
  EXPECT_EQ(answer_->error().code, ErrorCode::kDeadline);
  runtime_.run_for(1s);
  EXPECT_EQ(network_.handshakes().failed, 1U);
}

// At every moment of it; somebody was there.
TEST_F(SimHandshakes, AnEndThatDiesMeanwhileEndsIt) {
  for (const Duration after : {1500us, 2500us, 3500us, 4500us}) {
    SimRuntime runtime(1);
    SimNetwork network(runtime, {.link = {.latency = kLatency}});
    network.set_guard(kServer, std::make_shared<OpenGuard>());
    network.set_guard(kClient, std::make_shared<OpenGuard>());
    bool accepted = false;
    const auto address = network.node(kServer).listen({"", 0}, [&](auto) { accepted = true; });
    std::optional<Result<std::shared_ptr<Connection>>> answer;
    network.node(kClient).connect(*address, 60s, [&](auto made) { answer = std::move(made); });
    runtime.run_for(after);
    network.kill(kServer);
    runtime.run_for(1s);
    ASSERT_TRUE(answer.has_value()) << to_seconds(after);
    ASSERT_FALSE(answer->has_value());
    EXPECT_EQ(answer->error().code, ErrorCode::kDeadline);
    EXPECT_FALSE(accepted);
  }
}

TEST_F(SimHandshakes, BytesThatChangeOnTheirWayEndIt) {
  network_.damage(kClient, 1);
  dial();
  ASSERT_TRUE(until_answered());
  EXPECT_FALSE(answer_->has_value());
  EXPECT_EQ(accepted_, nullptr);
}

TEST_F(SimHandshakes, BetweenOneEndThatHasAKeyAndOneThatHasNoneThereIsNoLink) {
  for (const SimNodeId plain : {kServer, kClient}) {
    network_.set_guard(kServer, listens_);
    network_.set_guard(kClient, dials_);
    network_.set_guard(plain, nullptr);
    answer_.reset();
    dial();
    ASSERT_TRUE(until_answered());
    ASSERT_FALSE(answer_->has_value());
    EXPECT_EQ(answer_->error().code, ErrorCode::kDeadline);
    EXPECT_EQ(accepted_, nullptr);
  }
}

TEST_F(SimHandshakes, TwoThatMeetAtARelayShakeHandsThroughIt) {
  SimRelay relay(network_, kRelay, {});
  const Address at = *relay.listen({"sim", 0});
  ASSERT_TRUE(relay.expect("a ticket"));
  std::shared_ptr<Connection> met;
  network_.node(kServer).meet({.relay = at, .ticket = "a ticket", .dials = false}, 10s,
                              [&](Result<std::shared_ptr<Connection>> made) { met = *made; });
  network_.node(kClient).meet({.relay = at, .ticket = "a ticket", .dials = true}, 10s,
                              [this](auto made) { answered(std::move(made)); });
  ASSERT_TRUE(runtime_.run_until([&] { return met && answer_; }, 20s));
  ASSERT_TRUE(connection_ != nullptr) << refusal();
  EXPECT_EQ(connection_->peer_key(), listens_->identity().hash());
  EXPECT_EQ(connection_->admitted_as(), "listener");
  EXPECT_EQ(met->peer_key(), dials_->identity().hash());
  EXPECT_EQ(met->admitted_as(), "dialler");
}

}  // namespace
}  // namespace swarmline
