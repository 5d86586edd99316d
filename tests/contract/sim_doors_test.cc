// What the simulated doors add: determinism, forced sequences, links with a price, processes that
// die or freeze.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/net/rpc.h"
#include "sim/doors/sim_device.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr SimLink kFastLink{.latency = 1ms};

// Nodes that talk to node 1, each over its own connection; what node 1 got, in order, as "FROM:META
// ".
class Star {
 public:
  Star(std::uint64_t seed, SimLink link, int clients)
      : runtime_(seed), network_(runtime_, {.link = link}) {
    const auto bound = network_.node(1).listen({"", 0}, [this](auto connection) {
      const std::string from = connection->remote();
      connection->start(
          {.on_frame = [this, from](
                           const Frame& frame) { got_ += from.substr(4) + ":" + frame.meta + " "; },
           .on_closed =
               [this, from](const Error& e) {
                 got_ += from.substr(4) + ":" + to_string(e.code) + " ";
               }});
      servers_.push_back(std::move(connection));
    });
    EXPECT_EQ(to_string(*bound), "sim:1");
    for (int i = 0; i < clients; ++i) {
      const auto node = static_cast<SimNodeId>(i + 2);
      network_.node(node).connect(*bound, 10s, [this](auto connection) {
        clients_.push_back(*connection);
        (*connection)->start({.on_closed = [this](const Error& e) {
          client_ends_ += std::string(to_string(e.code)) + " ";
        }});
      });
      EXPECT_TRUE(runtime_.run_until(
          [&] { return clients_.size() == static_cast<std::size_t>(i + 1); }, 10s));
    }
    runtime_.run_for(1s);
  }
  void send(std::size_t client, std::string meta, std::size_t payload_bytes = 0) {
    Frame frame{.kind = 1, .meta = std::move(meta)};
    if (payload_bytes > 0) frame.payload.emplace_back(Buffer::zeroed(payload_bytes));
    clients_.at(client)->send(std::move(frame));
  }

  SimRuntime runtime_;
  SimNetwork network_;
  std::vector<std::shared_ptr<Connection>> clients_, servers_;
  std::string got_, client_ends_;
};

TEST(SimNetwork, ConnectionsReorderAgainstEachOtherAndNeverInside) {
  Star star(5, {.latency = 1ms, .jitter = 10ms}, 2);
  for (int i = 0; i < 30; ++i) {
    star.send(0, std::to_string(i));
    star.send(1, std::to_string(i));
  }
  star.runtime_.run_for(10s);
  std::string merged;
  int next[2] = {0, 0}, switches = 0;
  char last = '2';
  for (std::size_t at = 0; at < star.got_.size();) {
    const std::size_t space = star.got_.find(' ', at);
    const std::string token = star.got_.substr(at, space - at);
    const int client = token[0] - '2';
    EXPECT_EQ(token.substr(2), std::to_string(next[client]++));
    switches += token[0] != last;
    last = token[0];
    at = space + 1;
  }
  EXPECT_EQ(next[0], 30);
  EXPECT_EQ(next[1], 30);
  EXPECT_LT(switches, 58) << "they did not simply alternate as sent";
}

TEST(SimNetwork, BandwidthIsSharedByTheConnectionsOfAPair) {
  Star star(1, {.latency = 1ms, .bytes_per_second = 1e6}, 1);
  const Instant start = star.runtime_.now();
  star.send(0, "a", 100'000);
  star.send(0, "b", 100'000);
  const std::uint64_t wire_bytes = 2 * (40 + 1 + 100'000);
  EXPECT_EQ(star.clients_[0]->unsent_bytes(), wire_bytes);
  ASSERT_TRUE(star.runtime_.run_until([&] { return star.got_ == "2:a 2:b "; }, 10s));
  EXPECT_EQ(star.runtime_.now() - start, 1ms + std::chrono::microseconds(wire_bytes));
  EXPECT_EQ(star.clients_[0]->unsent_bytes(), 0U);
  EXPECT_EQ(star.network_.delivered(2, 1).bytes, wire_bytes);
  EXPECT_EQ(star.network_.delivered(1, 2).bytes, 0U);
  EXPECT_EQ(star.network_.delivered_total().frames, 2U);
}

TEST(SimNetwork, ALinkMaySlowOnePairInOneDirection) {
  Star star(1, kFastLink, 2);
  star.network_.set_link(2, 1, {.latency = 300ms});
  star.send(0, "slow");
  star.send(1, "fast");
  star.runtime_.run_for(1s);
  EXPECT_EQ(star.got_, "3:fast 2:slow ");
}

TEST(SimNetwork, AFilterHoldsDelaysAndReleasesFrames) {
  Star star(1, kFastLink, 2);
  star.network_.set_filter([](SimNodeId from, SimNodeId to, const Frame& frame) -> FrameFate {
    EXPECT_EQ(to, 1U);
    if (from == 2 && frame.meta == "held") return {.kind = FrameFate::Kind::kHold};
    if (frame.meta == "late") return {.kind = FrameFate::Kind::kDelay, .delay = 500ms};
    return {};
  });
  star.send(0, "held");
  star.send(0, "behind");
  star.send(1, "late");
  star.send(1, "after");
  star.runtime_.run_for(100ms);
  EXPECT_EQ(star.got_, "");
  star.runtime_.run_for(1s);
  EXPECT_EQ(star.got_, "3:late 3:after ");
  EXPECT_GT(star.clients_[0]->unsent_bytes(), 0U);
  EXPECT_EQ(star.network_.release(2, 1), 2U);
  EXPECT_EQ(star.network_.release(3, 1), 0U);
  star.runtime_.run_for(1s);
  EXPECT_EQ(star.got_, "3:late 3:after 2:held 2:behind ");
}

TEST(SimNetwork, AHeldConnectionClosesWithinASecondWithoutItsFrames) {
  Star star(1, kFastLink, 1);
  star.network_.set_filter([](SimNodeId, SimNodeId, const Frame&) -> FrameFate {
    return {.kind = FrameFate::Kind::kHold};
  });
  star.send(0, "held");
  star.clients_[0]->close();
  star.runtime_.run_for(900ms);
  EXPECT_EQ(star.client_ends_, "");
  star.runtime_.run_for(200ms);
  EXPECT_EQ(star.client_ends_, std::string(to_string(ErrorCode::kStopped)) + " ");
  EXPECT_EQ(star.got_, std::string("2:") + to_string(ErrorCode::kPeerGone) + " ");
}

TEST(SimNetwork, AFilterMayCutTheConnection) {
  Star star(1, kFastLink, 2);
  star.network_.set_filter([](SimNodeId, SimNodeId, const Frame& frame) -> FrameFate {
    return {.kind =
                frame.meta == "cut" ? FrameFate::Kind::kDropConnection : FrameFate::Kind::kDeliver};
  });
  star.send(0, "before");
  star.send(0, "cut");
  star.send(0, "ignored");
  star.send(1, "other");
  star.runtime_.run_for(1s);
  EXPECT_EQ(star.got_, std::string("2:before 2:") + to_string(ErrorCode::kPeerGone) + " 3:other ");
  EXPECT_EQ(star.client_ends_, std::string(to_string(ErrorCode::kPeerGone)) + " ");
}

TEST(SimNetwork, ATapSeesEveryDelivery) {
  Star star(1, kFastLink, 1);
  std::string seen;
  star.network_.set_tap([&](SimNodeId from, SimNodeId to, const Frame& frame) {
    seen += std::to_string(from) + ">" + std::to_string(to) + " " + frame.meta + "\n";
  });
  star.send(0, "x");
  star.runtime_.run_for(1s);
  EXPECT_EQ(seen, "2>1 x\n");
}

TEST(SimNetwork, AFrameOnTheWayArrivesFromANodeThatIsForgotten) {
  Star star(1, kFastLink, 1);
  star.send(0, "sent before the kill");
  star.network_.kill(2);
  star.network_.forget(2);
  star.runtime_.run_for(1s);
  EXPECT_EQ(star.got_,
            std::string("2:sent before the kill 2:") + to_string(ErrorCode::kPeerGone) + " ");
  EXPECT_EQ(star.network_.delivered(2, 1).frames, 0U) << "it is never asked about again";
}

TEST(SimNetwork, AKilledNodeRunsNothingAndItsPeersSeeIt) {
  Star star(1, kFastLink, 2);
  bool ran = false;
  star.runtime_.node(2).call_after(10ms, [&] { ran = true; });
  star.send(0, "sent before the kill");
  star.network_.kill(2);
  star.runtime_.run_for(1s);
  EXPECT_FALSE(ran);
  EXPECT_FALSE(star.runtime_.is_alive(2));
  EXPECT_EQ(star.got_,
            std::string("2:sent before the kill 2:") + to_string(ErrorCode::kPeerGone) + " ");
  EXPECT_EQ(star.client_ends_, "");
  star.send(1, "lives");
  star.runtime_.run_for(1s);
  EXPECT_TRUE(star.got_.ends_with("3:lives "));

  star.network_.kill(1);
  std::optional<Error> error;
  star.network_.node(3).connect({"sim", 1}, 1s,
                                [&](auto connection) { error = connection.error(); });
  star.runtime_.run_for(2s);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kPeerGone) << "nobody listens any more";
}

TEST(SimNetwork, ACutEndsBothDirectionsOfAPairOnly) {
  Star star(1, kFastLink, 2);
  star.network_.cut(2, 1);
  star.runtime_.run_for(1s);
  EXPECT_EQ(star.got_, std::string("2:") + to_string(ErrorCode::kPeerGone) + " ");
  EXPECT_EQ(star.client_ends_, std::string(to_string(ErrorCode::kPeerGone)) + " ");
}

// What a connection checks itself ends it where it is received; the sender hears of it later, and
// what it sent in between is lost.
TEST(SimNetwork, ADamagedFrameEndsItsConnection) {
  Star star(1, kFastLink, 2);
  star.network_.damage(2, 1);
  star.send(0, "damaged");
  star.send(0, "lost");
  star.send(1, "whole");
  star.network_.damage(2, 0);
  star.runtime_.run_for(1s);
  EXPECT_EQ(star.got_, std::string("3:whole 2:") + to_string(ErrorCode::kCorrupt) + " ");
  EXPECT_EQ(star.client_ends_, std::string(to_string(ErrorCode::kPeerGone)) + " ");
}

// Its order is in thaw_contract_test.cc. Frozen again at once, it still has all of that before it.
TEST(SimRuntime, AFrozenNodeCatchesUpWhenItThaws) {
  Star star(1, kFastLink, 1);
  star.runtime_.freeze(1);
  star.send(0, "a");
  const auto timer = [&](std::string name) {
    return star.runtime_.node(1).call_after(5ms, [&, name] { star.got_ += name + " "; });
  };
  timer("timer");
  const TimerId cancelled = timer("cancelled");
  star.runtime_.run_for(10ms);
  star.send(0, "b");
  star.runtime_.run_for(10s);
  star.runtime_.thaw(1);
  star.runtime_.freeze(1);
  star.runtime_.run_for(10s);
  EXPECT_EQ(star.got_, "");
  star.runtime_.cancel(cancelled);
  star.runtime_.thaw(1);
  star.runtime_.run_for(1ms);
  EXPECT_EQ(star.got_, "2:a 2:b timer ");
}

TEST(SimRuntime, WhatAFrozenNodeHeldDiesWithIt) {
  Star star(1, kFastLink, 1);
  star.runtime_.freeze(1);
  star.send(0, "a");
  star.runtime_.run_for(1s);
  star.runtime_.thaw(1);
  star.runtime_.kill(1);
  star.runtime_.revive(1);
  star.runtime_.run_for(1s);
  EXPECT_EQ(star.got_, "");
}

TEST(SimRuntime, RunStopsAtItsDeadlineAndAtTheLastEvent) {
  SimRuntime runtime(1);
  const Instant start = runtime.now();
  int fired = 0;
  for (int i = 1; i <= 5; ++i) runtime.node(0).call_after(i * 10ms, [&] { ++fired; });
  EXPECT_FALSE(runtime.run_until([] { return false; }, 25ms));
  EXPECT_EQ(fired, 2);
  runtime.run_for(10ms);
  EXPECT_EQ(fired, 3);
  EXPECT_FALSE(runtime.run_until([] { return false; }, 1h));
  EXPECT_EQ(fired, 5);
  EXPECT_EQ(runtime.now(), start + 50ms);
  EXPECT_FALSE(runtime.step());
}

// A ring of nodes that pass on a token by rpc, with jitter: enough for any order of events to be
// able to differ.
std::uint64_t ring_trace(std::uint64_t seed, Duration extra = {}) {
  SimRuntime runtime(seed);
  SimNetwork network(runtime, {.link = {.latency = 1ms, .jitter = 5ms, .bytes_per_second = 1e7}});
  constexpr SimNodeId kNodes = 6;
  std::vector<std::shared_ptr<RpcChannel>> next(kNodes + 1), served;
  for (SimNodeId node = 1; node <= kNodes; ++node) {
    (void)network.node(node).listen({"", 0}, [&, node](auto connection) {
      served.push_back(RpcChannel::make(runtime.node(node), std::move(connection)));
      served.back()->start({.on_request = [&, node](Frame request, RpcChannel::Respond respond) {
        respond(Frame{.kind = 2});
        if (request.meta.size() > 40) return;
        runtime.node(node).call_after(extra + 1ms, [&, node, meta = request.meta] {
          next[node]->call({.kind = 1, .meta = meta + 'x'}, 10s,
                           [](Result<Frame> reply) { EXPECT_TRUE(reply.has_value()); });
        });
      }});
    });
  }
  for (SimNodeId node = 1; node <= kNodes; ++node) {
    const auto to = static_cast<std::uint16_t>(node % kNodes + 1);
    network.node(node).connect({"sim", to}, 10s, [&, node](auto connection) {
      next[node] = RpcChannel::make(runtime.node(node), *connection);
      next[node]->start({});
    });
  }
  runtime.run_for(1s);
  for (SimNodeId node = 1; node <= kNodes; ++node) {
    next.at(node)->call({.kind = 1, .meta = std::to_string(node)}, 10s, [](Result<Frame>) {});
  }
  runtime.run_for(60s);
  EXPECT_GT(network.delivered_total().frames, 6U * 40 * 2);
  for (auto& channel : next) {
    if (channel) channel->close();
  }
  for (auto& channel : served) channel->close();
  runtime.run_for(10s);
  return runtime.trace_hash();
}

TEST(SimRuntime, TheSameSeedGivesTheSameTraceAndAnyDifferenceAnother) {
  EXPECT_EQ(ring_trace(7), ring_trace(7));
  EXPECT_NE(ring_trace(7), ring_trace(8));
  EXPECT_NE(ring_trace(7), ring_trace(7, 1ns));
}

struct Finished {
  std::string name;
  Duration after;
  Duration service;
  bool operator==(const Finished&) const = default;
};

TEST(SimDevice, JobsTakeTheirEstimateOverTheSpeedOneAfterTheOther) {
  SimRuntime runtime(1);
  SimDevice device(runtime.node(0), {.speed = 4, .forward = 30ms});
  const Instant start = runtime.now();
  std::vector<Finished> finished;
  const auto submit = [&](std::string name, JobKind kind, Duration estimate) {
    const Job job{.kind = kind, .estimate = estimate, .body = [] { return Result<void>{}; }};
    ASSERT_TRUE(device
                    .submit(job,
                            [&, name](const JobReport& report) {
                              finished.push_back({name, runtime.now() - start, report.service});
                            })
                    .has_value());
  };
  submit("backward", JobKind::kBackward, 100ms);
  submit("forward", JobKind::kForward, 100ms);
  submit("free", JobKind::kOther, 0ms);
  runtime.run_for(10s);
  EXPECT_EQ(finished, (std::vector<Finished>{
                          {"backward", 25ms, 25ms}, {"forward", 55ms, 30ms}, {"free", 55ms, 0ms}}));
  EXPECT_EQ(device.busy_total(), 55ms);
}

// Three lanes: the second tensor comes in while the first one is computed with, and the first
// result goes out while the second is. A job without a finish waits for the lane in the middle.
TEST(SimDevice, LanesGoOnBesideEachOther) {
  SimRuntime runtime(1);
  SimDevice device(runtime.node(1), {.way_in = 2ms, .way_out = 1ms});
  const Instant start = runtime.now();
  std::vector<Duration> begun, ended, completed;
  const auto since = [&] { return runtime.now() - start; };
  const auto submit = [&](bool goes_on) {
    Job job{.estimate = 3ms, .body = [&] {
              begun.push_back(since());
              return Result<void>{};
            }};
    if (goes_on)
      job.finish = [&] {
        ended.push_back(since());
        return Result<void>{};
      };
    ASSERT_TRUE(device.submit(std::move(job), [&](const JobReport& report) {
      completed.push_back(since());
      EXPECT_EQ(report.service, 3ms);
    }));
  };
  for (const bool goes_on : {true, true, false, true}) submit(goes_on);
  runtime.run_for(1s);
  EXPECT_EQ(begun, (std::vector<Duration>{0ms, 0ms, 11ms, 11ms}));
  EXPECT_EQ(ended, (std::vector<Duration>{6ms, 9ms, 17ms}));
  EXPECT_EQ(completed, (std::vector<Duration>{6ms, 9ms, 11ms, 17ms}));
  EXPECT_EQ(device.busy_total(), 12ms);
}

// They are on the device, as what they are made of: nothing comes in or goes out for them, and they
// are over once what went out before them has arrived.
TEST(SimDevice, WeightGradientsCrossNothing) {
  SimRuntime runtime(1);
  SimDevice device(runtime.node(1), {.way_in = 2ms, .way_out = 4ms});
  const Instant start = runtime.now();
  std::vector<Duration> computed, completed;
  const auto since = [&] { return runtime.now() - start; };
  const auto submit = [&](JobKind kind) {
    Job job{.kind = kind, .estimate = 3ms, .body = [] { return Result<void>{}; }};
    job.finish = [] { return Result<void>{}; };
    job.computed = [&] {
      computed.push_back(since());
      return Result<void>{};
    };
    job.on_computed = [] {};
    ASSERT_TRUE(
        device.submit(std::move(job), [&](const JobReport&) { completed.push_back(since()); }));
  };
  submit(JobKind::kWeightGradients);
  runtime.run_for(10ms);
  EXPECT_EQ(completed, (std::vector<Duration>{3ms}));
  for (const JobKind kind : {JobKind::kInputGradient, JobKind::kWeightGradients, JobKind::kForward})
    submit(kind);
  runtime.run_for(1s);
  EXPECT_EQ(computed, (std::vector<Duration>{3ms, 15ms, 18ms, 21ms}));
  EXPECT_EQ(completed, (std::vector<Duration>{3ms, 19ms, 19ms, 25ms}));
}

TEST(SimDevice, JitterIsBoundedAndFollowsTheSeed) {
  const auto total = [](std::uint64_t seed) {
    SimRuntime runtime(1);
    SimDevice device(runtime.node(0),
                     {.forward = 10ms, .jitter = 0.2, .seed = seed, .queue_jobs_max = 100});
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(device
                      .submit({.kind = JobKind::kForward, .body = [] { return Result<void>{}; }},
                              [](const JobReport& report) {
                                EXPECT_GE(report.service, 8ms);
                                EXPECT_LE(report.service, 12ms);
                              })
                      .has_value());
    }
    runtime.run_for(10s);
    return device.busy_total();
  };
  EXPECT_EQ(total(1), total(1));
  EXPECT_NE(total(1), total(2));
  EXPECT_NEAR(to_seconds(total(1)), 1.0, 0.05);
}

TEST(SimDevice, SlowsDownAndRecovers) {
  SimRuntime runtime(1);
  SimDevice device(runtime.node(0), {.forward = 10ms});
  const auto one = [&] {
    Duration took{};
    EXPECT_TRUE(device
                    .submit({.kind = JobKind::kForward, .body = [] { return Result<void>{}; }},
                            [&](const JobReport& report) { took = report.service; })
                    .has_value());
    runtime.run_for(1s);
    return took;
  };
  EXPECT_EQ(one(), 10ms);
  device.slow_down(5);
  EXPECT_EQ(one(), 50ms);
  device.slow_down(1);
  EXPECT_EQ(one(), 10ms);
}

}  // namespace
}  // namespace swarmline
