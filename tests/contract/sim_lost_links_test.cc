// What simulated links do where nobody is told: bytes that vanish, machines without power, nodes
// that nothing reaches, processes without descriptors; and how a stopped process wakes.
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr SimNodeId kServer = 1, kClient = 2;
constexpr Duration kJustBefore = kSimUserTimeout - 100ms;

// One connection, and what each end got.
class Pair {
 public:
  Pair() {
    address_ = *network_.node(kServer).listen({"", 0}, [this](auto connection) {
      server_ = std::move(connection);
      server_->start(watch(server_got_));
    });
    client_ = dial();
    client_->start(watch(client_got_));
    runtime_.run_for(1s);
  }
  std::shared_ptr<Connection> dial() {
    std::shared_ptr<Connection> made;
    network_.node(kClient).connect(address_, 5s, [&](auto connection) {
      made = connection ? *connection : nullptr;
      said_ = connection ? "connected" : to_string(connection.error().code);
    });
    runtime_.run_for(5s);
    return made;
  }
  static void say(const std::shared_ptr<Connection>& end, std::string what) {
    end->send(Frame{.kind = 1, .meta = std::move(what)});
  }

  SimRuntime runtime_{1};
  SimNetwork network_{runtime_, {.link = {.latency = 1ms}}};
  Address address_;
  std::shared_ptr<Connection> client_, server_;
  std::string client_got_, server_got_, said_;

 private:
  static Connection::Handlers watch(std::string& got) {
    return {.on_frame = [&got](const Frame& frame) { got += frame.meta + " "; },
            .on_closed = [&got](const Error& e) { got += std::string(to_string(e.code)) + " "; }};
  }
};
const std::string kGone = std::string(to_string(ErrorCode::kPeerGone)) + " ";  // a reset
const std::string kNoAnswer = std::string(to_string(ErrorCode::kDeadline)) + " ";

TEST(SimHalfOpen, BothEndsFindOutByTheUserTimeoutEachAlone) {
  Pair pair;
  pair.network_.half_open(kClient, kServer, true);
  Pair::say(pair.client_, "lost");
  pair.runtime_.run_for(kJustBefore);
  EXPECT_EQ(pair.client_got_, "");
  EXPECT_EQ(pair.server_got_, "");
  pair.runtime_.run_for(1s);
  EXPECT_EQ(pair.client_got_, kNoAnswer);
  EXPECT_EQ(pair.server_got_, kNoAnswer) << "it has nothing to say, and its kernel asks";
  EXPECT_NE(pair.dial(), nullptr) << "new connections are whole";
}

TEST(SimHalfOpen, InOneDirectionTheOtherEndIsHeardAndNotAcknowledged) {
  Pair pair;
  pair.network_.half_open(kClient, kServer, false);
  Pair::say(pair.client_, "lost");
  Pair::say(pair.server_, "heard");
  pair.runtime_.run_for(kJustBefore);
  EXPECT_EQ(pair.server_got_, "");
  EXPECT_EQ(pair.client_got_, "heard ");
  pair.runtime_.run_for(1s);
  EXPECT_EQ(pair.server_got_, kNoAnswer);
  EXPECT_EQ(pair.client_got_, "heard " + kNoAnswer);
}

TEST(SimPowerLoss, NobodyHearsOfItBeforeTheUserTimeout) {
  Pair pair;
  pair.network_.power_off(kServer);
  EXPECT_EQ(pair.dial(), nullptr);
  EXPECT_EQ(pair.said_, to_string(ErrorCode::kDeadline)) << "nobody refuses, either";
  Pair::say(pair.client_, "to nobody");
  pair.runtime_.run_for(kJustBefore - 5s);  // the dial took those
  EXPECT_EQ(pair.client_got_, "");
  pair.runtime_.run_for(1s);
  EXPECT_EQ(pair.client_got_, kNoAnswer);
}

TEST(SimPowerLoss, AMachineThatIsThereAgainResetsAndRefuses) {
  Pair pair;
  pair.network_.power_off(kServer);
  Pair::say(pair.client_, "to nobody");
  pair.runtime_.run_for(10s);
  pair.network_.power_on(kServer);
  pair.runtime_.run_for(1s);
  EXPECT_EQ(pair.client_got_, kGone) << "what was sent is sent again, and reset";
  EXPECT_EQ(pair.dial(), nullptr);
  EXPECT_EQ(pair.said_, to_string(ErrorCode::kPeerGone));
}

TEST(SimSilence, AMuteNodeHearsAndIsNotHeard) {
  Pair pair;
  pair.network_.silence(kClient, true, false);
  Pair::say(pair.client_, "held");
  Pair::say(pair.server_, "heard");
  pair.runtime_.run_for(10s);
  EXPECT_EQ(pair.server_got_, "");
  EXPECT_EQ(pair.client_got_, "heard ");
  EXPECT_FALSE(pair.network_.is_open());
  pair.network_.unsilence(kClient);
  pair.runtime_.run_for(kSimUserTimeout * 2);
  EXPECT_EQ(pair.server_got_, "held ");
  EXPECT_EQ(pair.client_got_, "heard ");
  EXPECT_TRUE(pair.network_.is_open());
}

TEST(SimSilence, AMuteNodeHearsNoRefusal) {
  Pair pair;
  pair.network_.power_off(kServer);
  pair.network_.power_on(kServer);  // nobody listens there
  EXPECT_EQ(pair.dial(), nullptr);
  EXPECT_EQ(pair.said_, to_string(ErrorCode::kPeerGone));
  pair.network_.silence(kClient, true, false);
  EXPECT_EQ(pair.dial(), nullptr);
  EXPECT_EQ(pair.said_, to_string(ErrorCode::kDeadline));
}

TEST(SimSilence, AnIsolatedNodeLosesItsLinksAtBothEnds) {
  Pair pair;
  pair.network_.silence(kClient, true, true);
  pair.runtime_.run_for(kJustBefore);
  EXPECT_EQ(pair.client_got_ + pair.server_got_, "");
  pair.runtime_.run_for(1s);
  EXPECT_EQ(pair.client_got_, kNoAnswer);
  EXPECT_EQ(pair.server_got_, kNoAnswer);
}

TEST(SimSilence, WhatReachesAnEndThatIsOverIsReset) {
  Pair pair;
  pair.network_.power_off(kServer);
  pair.runtime_.run_for(10s);
  pair.network_.power_on(kServer);
  pair.runtime_.run_for(10s);
  Pair::say(pair.client_, "anybody there?");
  pair.runtime_.run_for(1s);
  EXPECT_EQ(pair.client_got_, kGone);
}

TEST(SimFull, AProcessWithoutDescriptorsDialsNobodyAndTakesNobody) {
  Pair pair;
  pair.network_.fill(kServer, true);
  EXPECT_EQ(pair.dial(), nullptr);
  EXPECT_EQ(pair.said_, to_string(ErrorCode::kDeadline));
  Pair::say(pair.client_, "still heard");
  pair.runtime_.run_for(1s);
  EXPECT_EQ(pair.server_got_, "still heard ");
  pair.network_.fill(kServer, false);
  EXPECT_NE(pair.dial(), nullptr);
  pair.network_.fill(kClient, true);
  EXPECT_EQ(pair.dial(), nullptr);
}

TEST(SimRuntime, AProcessStoppedBeforeItsTimerWakesWithAllTimersFirst) {
  for (const SimWake wake : {SimWake::kSocketsFirst, SimWake::kTimersFirst}) {
    Pair pair;
    pair.runtime_.freeze(kServer, wake);
    pair.runtime_.node(kServer).call_after(5s, [&] { pair.server_got_ += "timer "; });
    Pair::say(pair.client_, "frame");
    pair.runtime_.run_for(10s);
    pair.runtime_.thaw(kServer);
    pair.runtime_.run_for(1s);
    EXPECT_EQ(pair.server_got_, wake == SimWake::kSocketsFirst ? "frame timer " : "timer frame ");
  }
}

TEST(SimRuntime, KnowsWhomItHurt) {
  Pair pair;
  EXPECT_EQ(pair.runtime_.hurt(kServer), 0U);
  pair.network_.block(kServer, kClient);
  EXPECT_EQ(pair.runtime_.hurt(kServer), 1U);
  pair.runtime_.freeze(kClient);
  EXPECT_EQ(pair.runtime_.hurt(kClient), 2U);
  EXPECT_EQ(pair.runtime_.frozen(), 1U);
  pair.runtime_.kill(kClient);
  EXPECT_EQ(pair.runtime_.frozen(), 0U);
}

}  // namespace
}  // namespace swarmline
