// Shares of work against shares of speed, in virtual time: several independent senders before peers
// of a stage that serve one job at a time, backward first, and refuse what they have no room for.
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "pipeline/wiring/static_wiring.h"
#include "pipeline/wiring/wiring_router.h"

namespace swarmline {
namespace {

using std::chrono::milliseconds;

struct PeerModel {
  Duration forward{};  // backward takes twice that
  std::uint32_t admitted_max = 1000;
};

struct Scenario {
  std::vector<PeerModel> peers;
  std::uint32_t senders = 3;
  std::uint32_t window = 24;  // microbatches each sender keeps under way
  double jitter = 0;          // relative, uniform
  bool is_static = false;
  std::uint32_t in_flight_max = 16;
  std::uint64_t seed = 1;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Duration> links;  // of a sender to a peer
};

class Swarm {
 public:
  explicit Swarm(const Scenario& scenario) : scenario_(scenario), rng_(scenario.seed) {
    peers_.resize(scenario.peers.size());
    for (std::uint32_t s = 0; s < scenario.senders; ++s) {
      Sender sender;
      if (scenario.is_static) {
        sender.wiring = std::make_unique<StaticWiring>(scenario.in_flight_max);
      } else {
        sender.wiring = std::make_unique<WiringRouter>(
            WiringOptions{.in_flight_max = scenario.in_flight_max, .seed = scenario.seed + s});
      }
      for (std::uint32_t p = 0; p < peers_.size(); ++p) sender.wiring->add(id(p), {});
      senders_.push_back(std::move(sender));
    }
    for (std::uint32_t s = 0; s < scenario.senders; ++s) start_all(s);
  }

  // Runs until `count` more microbatches are settled; how many each peer served of them.
  std::vector<double> serve(int count) {
    std::vector<double> served(peers_.size(), 0);
    served_ = &served;
    for (settled_ = 0; settled_ < count && !events_.empty();) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      event.run();
    }
    EXPECT_EQ(settled_, count) << "the swarm came to a stop";
    served_ = nullptr;
    return served;
  }

  // The peer stops answering; its senders time out `after` later, settle what it holds and send it
  // elsewhere.
  void freeze(std::uint32_t peer, Duration after) {
    peers_[peer].frozen = true;
    at(now_ + after, [this, peer, after] { time_out(peer, after); });
  }
  void thaw(std::uint32_t peer) {
    peers_[peer].frozen = false;
    peers_[peer].queue.clear();
    peers_[peer].busy = false;
    peers_[peer].admitted = 0;
    ++peers_[peer].life;
    for (Sender& sender : senders_) sender.wiring->on_heard(id(peer));
    for (std::uint32_t s = 0; s < senders_.size(); ++s) start_all(s);
  }
  void add_peer(const PeerModel& peer) {
    scenario_.peers.push_back(peer);
    peers_.emplace_back();
    const auto p = static_cast<std::uint32_t>(peers_.size() - 1);
    for (Sender& sender : senders_) sender.wiring->add(id(p), {peer.forward, 2 * peer.forward});
  }
  Instant now() const { return now_; }
  std::uint32_t in_flight_seen_max() const { return in_flight_seen_max_; }

 private:
  struct Sender {
    std::unique_ptr<Wiring> wiring;
    std::uint32_t under_way = 0;
    std::uint32_t next_index = 0;
    std::map<std::uint32_t, std::uint32_t> held;  // by peer
  };
  struct Job {
    std::uint32_t sender;
    bool backward;
  };
  struct Peer {
    std::deque<Job> queue;
    bool busy = false;
    bool frozen = false;
    std::uint32_t admitted = 0;
    std::uint32_t life = 0;
    std::vector<std::uint32_t> refused;  // senders that wait for a credit
  };
  struct Event {
    Instant at;
    std::uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  static PeerId id(std::uint32_t peer) { return PeerId(peer + 1); }
  void at(Instant when, std::function<void()> run) {
    events_.push({when, order_++, std::move(run)});
  }
  Duration jittered(Duration d) {
    const double factor = 1 + scenario_.jitter * (2 * rng_.uniform() - 1);
    return from_seconds(to_seconds(d) * factor);
  }

  void start_all(std::uint32_t s) {
    Sender& sender = senders_[s];
    while (sender.under_way < scenario_.window) {
      const auto peer = sender.wiring->pick({{PhaseKind::kTrain, 0}, sender.next_index}, {});
      if (!peer) return;
      const std::uint32_t p = peer->value - 1;
      if (peers_[p].admitted >= scenario_.peers[p].admitted_max) {
        sender.wiring->on_full(*peer);
        peers_[p].refused.push_back(s);
        continue;
      }
      ++sender.next_index;
      ++sender.under_way;
      in_flight_seen_max_ = std::max(in_flight_seen_max_, ++sender.held[p]);
      ++peers_[p].admitted;
      const Duration link = scenario_.links[{s, p}];
      sender.wiring->on_sent(*peer, link);
      Instant& sent = sent_[{s, p}];
      sent = std::max(sent, now_) + link;
      const std::uint32_t life = peers_[p].life;
      at(sent + jittered(milliseconds(1)), [this, p, s, life] { arrive(p, {s, false}, life); });
    }
  }

  void arrive(std::uint32_t p, Job job, std::uint32_t life) {
    if (life != peers_[p].life) return;
    if (job.backward) {
      peers_[p].queue.push_front(job);
    } else {
      peers_[p].queue.push_back(job);
    }
    work(p);
  }

  void work(std::uint32_t p) {
    Peer& peer = peers_[p];
    if (peer.busy || peer.frozen || peer.queue.empty()) return;
    peer.busy = true;
    const Job job = peer.queue.front();
    peer.queue.pop_front();
    const Duration service = jittered(scenario_.peers[p].forward * (job.backward ? 2 : 1));
    const std::uint32_t life = peer.life;
    at(now_ + service, [this, p, job, service, life] {
      if (life != peers_[p].life || peers_[p].frozen) return;
      peers_[p].busy = false;
      finish(p, job, service);
      work(p);
    });
  }

  Duration backlog(std::uint32_t p) const {
    Duration waiting{};
    for (const Job& job : peers_[p].queue)
      waiting += scenario_.peers[p].forward * (job.backward ? 2 : 1);
    return waiting;
  }

  void finish(std::uint32_t p, Job job, Duration service) {
    Sender& sender = senders_[job.sender];
    sender.wiring->on_backlog(id(p), backlog(p));
    if (!job.backward) {
      sender.wiring->on_forward_done(id(p), service);
      const std::uint32_t life = peers_[p].life;
      at(now_ + jittered(milliseconds(20)),
         [this, p, job, life] { arrive(p, {job.sender, true}, life); });
      return;
    }
    sender.wiring->on_backward_done(id(p), service);
    --peers_[p].admitted;
    settle(p, job.sender, 1);
    if (served_ != nullptr) ++(*served_)[p];
    ++settled_;
    std::vector<std::uint32_t> refused;
    refused.swap(peers_[p].refused);
    for (const std::uint32_t s : refused) {
      senders_[s].wiring->on_credit(id(p));
      start_all(s);
    }
    start_all(job.sender);
  }

  void settle(std::uint32_t p, std::uint32_t s, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) senders_[s].wiring->on_settled(id(p));
    senders_[s].under_way -= count;
    senders_[s].held[p] -= count;
  }

  void time_out(std::uint32_t p, Duration charged) {
    for (std::uint32_t s = 0; s < senders_.size(); ++s) {
      const std::uint32_t held = senders_[s].held[p];
      for (std::uint32_t i = 0; i < held; ++i) senders_[s].wiring->on_timeout(id(p), charged);
      settle(p, s, held);
      start_all(s);
    }
  }

  Scenario scenario_;
  Rng rng_;
  Instant now_{};
  std::uint64_t order_ = 0;
  std::vector<Sender> senders_;
  std::vector<Peer> peers_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Instant> sent_;  // by a sender to a peer
  std::priority_queue<Event> events_;
  std::vector<double>* served_ = nullptr;
  int settled_ = 0;
  std::uint32_t in_flight_seen_max_ = 0;
};

std::vector<PeerModel> speeds_1_2_4() {
  return {{milliseconds(40)}, {milliseconds(20)}, {milliseconds(10)}};
}

// Shares of `served` within `tolerance` (relative) of shares of speed.
void expect_shares(const std::vector<double>& served, const std::vector<double>& speeds,
                   double tolerance) {
  double served_all = 0;
  double speed_all = 0;
  for (const double n : served) served_all += n;
  for (const double v : speeds) speed_all += v;
  for (std::size_t p = 0; p < served.size(); ++p) {
    const double share = served[p] / served_all;
    const double fair = speeds[p] / speed_all;
    EXPECT_NEAR(share / fair, 1, tolerance) << "peer " << p << " served " << served[p];
  }
}

TEST(WiringSharesTest, SharesOfWorkAreSharesOfSpeed) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Swarm swarm({.peers = speeds_1_2_4(), .senders = 3, .seed = seed});
    swarm.serve(300);
    expect_shares(swarm.serve(2000), {1, 2, 4}, 0.02);
  }
}

TEST(WiringSharesTest, SharesHoldWithJitteringService) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Swarm swarm({.peers = speeds_1_2_4(), .senders = 4, .jitter = 0.3, .seed = seed});
    swarm.serve(300);
    expect_shares(swarm.serve(4000), {1, 2, 4}, 0.02);
  }
}

TEST(WiringSharesTest, SharesHoldForOneSenderAndForEight) {
  for (const std::uint32_t senders : {1U, 8U}) {
    Swarm swarm({.peers = speeds_1_2_4(), .senders = senders, .window = 16});
    swarm.serve(400);
    expect_shares(swarm.serve(2000), {1, 2, 4}, 0.02);
  }
}

TEST(WiringSharesTest, StaticRoutesShareEvenlyAndRunAsSlowAsTheSlowest) {
  const Scenario routed{.peers = speeds_1_2_4()};
  Scenario fixed = routed;
  fixed.is_static = true;
  Swarm stochastic(routed);
  Swarm by_index(fixed);
  stochastic.serve(300);
  by_index.serve(300);
  const Instant stochastic_start = stochastic.now();
  const Instant fixed_start = by_index.now();
  stochastic.serve(2000);
  expect_shares(by_index.serve(2000), {1, 1, 1}, 0.03);
  const double gain =
      to_seconds(by_index.now() - fixed_start) / to_seconds(stochastic.now() - stochastic_start);
  EXPECT_GT(gain, 7.0 / 3.0 * 0.9);  // 1 + 2 + 4 against three times the slowest
}

TEST(WiringSharesTest, ASmallPeerRefusesAndNobodyStops) {
  Scenario scenario{.peers = speeds_1_2_4(), .senders = 4};
  for (PeerModel& peer : scenario.peers) peer.admitted_max = 12;
  Swarm swarm(scenario);
  swarm.serve(300);
  expect_shares(swarm.serve(2000), {1, 2, 4}, 0.05);
}

TEST(WiringSharesTest, InFlightPerPeerStaysWithinItsCap) {
  Swarm swarm({.peers = speeds_1_2_4(), .window = 64, .in_flight_max = 5});
  swarm.serve(2000);
  EXPECT_LE(swarm.in_flight_seen_max(), 5U);
}

TEST(WiringSharesTest, AJoinerSettlesAtItsShare) {
  Swarm swarm({.peers = speeds_1_2_4(), .senders = 3});
  swarm.serve(1000);
  swarm.add_peer({milliseconds(10)});
  swarm.serve(300);
  expect_shares(swarm.serve(2000), {1, 2, 4, 4}, 0.02);
}

// One sender has 120 ms of link for each microbatch to the second of two equal peers, and gives it
// a fifth; the other one makes up for that, or a seventh of the devices' time would be lost.
TEST(WiringSharesTest, OthersFillAPeerThatOneSenderHardlyReaches) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Swarm swarm({.peers = {{milliseconds(10)}, {milliseconds(10)}},
                 .senders = 2,
                 .jitter = 0.2,
                 .in_flight_max = 64,
                 .seed = seed,
                 .links = {{{0, 1}, milliseconds(120)}}});
    swarm.serve(500);
    const Instant start = swarm.now();
    expect_shares(swarm.serve(3000), {1, 1}, 0.06);
    const double seconds = to_seconds(swarm.now() - start);
    EXPECT_LT(seconds, 1.06 * 3000 * 0.030 / 2) << "devices idle";
  }
}

// One of three equal peers freezes for good: the run loses its third of the throughput and the
// time-out, no more.
TEST(WiringSharesTest, AStragglerCostsAtMostItsOwnShare) {
  const Scenario scenario{.peers = {{milliseconds(10)}, {milliseconds(10)}, {milliseconds(10)}}};
  const auto seconds_for_2000 = [&](bool freeze) {
    Swarm swarm(scenario);
    swarm.serve(300);
    const Instant start = swarm.now();
    if (freeze) swarm.freeze(2, milliseconds(500));
    const auto served = swarm.serve(2000);
    if (freeze) EXPECT_LT(served[2], 10);
    return to_seconds(swarm.now() - start);
  };
  const double whole = seconds_for_2000(false);
  EXPECT_LE(seconds_for_2000(true), whole * 3 / 2 + 0.5);
}

TEST(WiringSharesTest, AThawedPeerComesBackToItsShare) {
  Swarm swarm({.peers = speeds_1_2_4(), .senders = 3});
  swarm.serve(300);
  swarm.freeze(2, milliseconds(200));
  const auto without = swarm.serve(500);
  EXPECT_LT(without[2], 10);
  swarm.thaw(2);
  swarm.serve(300);
  expect_shares(swarm.serve(2000), {1, 2, 4}, 0.02);
}

}  // namespace
}  // namespace swarmline
