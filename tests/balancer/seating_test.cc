#include "balancer/seating.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/rng.h"
#include "base/units.h"

namespace swarmline {
namespace {

using Counts = std::vector<std::uint32_t>;

SwarmSnapshot swarm(std::vector<StageFacts> stages, const std::vector<double>& speeds) {
  SwarmSnapshot snapshot{std::move(stages), {}};
  for (const double speed : speeds) {
    const PeerId id(static_cast<std::uint32_t>(snapshot.peers.size() + 1));
    snapshot.peers.push_back({.peer = id, .speed = speed, .stage = {}});
  }
  return snapshot;
}

void apply(SwarmSnapshot& snapshot, const std::vector<Seating>& seating) {
  for (PeerFacts& peer : snapshot.peers) peer.stage.reset();
  for (const Seating& seat : seating) {
    for (PeerFacts& peer : snapshot.peers) {
      if (peer.peer == seat.peer) peer.stage = seat.stage;
    }
  }
}

Counts counts(const SwarmSnapshot& snapshot) {
  Counts result(snapshot.stages.size(), 0);
  for (const PeerFacts& peer : snapshot.peers) {
    if (peer.stage) ++result[peer.stage->value];
  }
  return result;
}

double slowest(const SwarmSnapshot& snapshot) {
  const auto throughputs = stage_throughputs(snapshot);
  return *std::min_element(throughputs.begin(), throughputs.end());
}

// Seats everybody; fails the test on an error.
SwarmSnapshot seated(SwarmSnapshot snapshot) {
  const auto seating = seat_peers(snapshot);
  EXPECT_TRUE(seating) << seating.error().what;
  if (seating) apply(snapshot, *seating);
  return snapshot;
}

TEST(SeatPeersTest, EqualPeersFollowTheTargets) {
  const auto snapshot =
      seated(swarm({{.target = 2}, {.target = 3}, {.target = 1}}, std::vector<double>(6, 1)));
  EXPECT_EQ(counts(snapshot), (Counts{2, 3, 1}));
}

TEST(SeatPeersTest, WithoutTargetsPeersFollowTheCost) {
  const auto snapshot =
      seated(swarm({{.cost = 1}, {.cost = 2}, {.cost = 3}}, std::vector<double>(12, 1)));
  EXPECT_EQ(counts(snapshot), (Counts{2, 4, 6}));
}

TEST(SeatPeersTest, UnequalSpeedsAreBalanced) {
  const auto snapshot = seated(swarm({{.target = 2}, {.target = 2}}, {4, 3, 2, 1}));
  EXPECT_EQ(stage_throughputs(snapshot), (std::vector<double>{5, 5}));
}

TEST(SeatPeersTest, TheHeavyStageGetsTheFastPeer) {
  const auto snapshot = seated(swarm({{.cost = 1, .target = 1}, {.cost = 4, .target = 1}}, {4, 1}));
  EXPECT_EQ(snapshot.peers[0].stage, StageId(1));
  EXPECT_EQ(slowest(snapshot), 1);
}

TEST(SeatPeersTest, SparePeersGoWhereThroughputIsLowest) {
  const auto snapshot =
      seated(swarm({{.cost = 1, .target = 1}, {.cost = 2, .target = 1}}, {1, 1, 1}));
  EXPECT_EQ(counts(snapshot), (Counts{1, 2}));
}

TEST(SeatPeersTest, MemoryIsRespected) {
  SwarmSnapshot snapshot = swarm({{.memory_bytes = 10}, {.memory_bytes = 100}}, {8, 1});
  snapshot.peers[0].memory_bytes = 50;
  snapshot.peers[1].memory_bytes = 100;
  snapshot = seated(snapshot);
  EXPECT_EQ(snapshot.peers[0].stage, StageId(0));
  EXPECT_EQ(snapshot.peers[1].stage, StageId(1));
}

TEST(SeatPeersTest, APeerThatFitsNowhereStaysUnseated) {
  SwarmSnapshot snapshot = swarm({{.memory_bytes = 10}}, {1, 1});
  snapshot.peers[1].memory_bytes = 5;
  const auto seating = seat_peers(snapshot);
  ASSERT_TRUE(seating);
  EXPECT_EQ(*seating, (std::vector<Seating>{{PeerId(1), StageId(0)}}));
}

TEST(SeatPeersTest, TooFewPeersOrTooLittleMemoryIsSaid) {
  const auto few = seat_peers(swarm({{.target = 2}, {.target = 2}}, {1, 1, 1}));
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().code, ErrorCode::kRefused);
  EXPECT_NE(few.error().what.find("start 1 more"), std::string::npos) << few.error().what;
  SwarmSnapshot small = swarm({{.memory_bytes = 10}, {.memory_bytes = 100}}, {1, 1});
  for (PeerFacts& peer : small.peers) peer.memory_bytes = 50;
  const auto refused = seat_peers(small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().what.find("stage 1 needs 1 peers with 100 bytes"), std::string::npos)
      << refused.error().what;
}

TEST(SeatPeersTest, SameSnapshotSamePlanWhateverTheOrderOfPeers) {
  const SwarmSnapshot forward = swarm({{.cost = 1}, {.cost = 2}}, {3, 1, 2, 1, 1});
  SwarmSnapshot backward = forward;
  std::reverse(backward.peers.begin(), backward.peers.end());
  EXPECT_EQ(seat_peers(forward).value(), seat_peers(forward).value());
  EXPECT_DOUBLE_EQ(slowest(seated(forward)), slowest(seated(backward)));
}

// Every assignment that meets targets and memory; the best slowest stage, or none.
std::optional<double> brute_force(SwarmSnapshot snapshot) {
  std::optional<double> best;
  std::size_t assignments = 1;
  for (std::size_t p = 0; p < snapshot.peers.size(); ++p) assignments *= snapshot.stages.size();
  for (std::size_t code = 0; code < assignments; ++code) {
    std::size_t rest = code;
    bool fits = true;
    for (PeerFacts& peer : snapshot.peers) {
      peer.stage = StageId(static_cast<std::uint16_t>(rest % snapshot.stages.size()));
      rest /= snapshot.stages.size();
      fits &= peer.memory_bytes == 0 ||
              peer.memory_bytes >= snapshot.stages[peer.stage->value].memory_bytes;
    }
    const Counts seats = counts(snapshot);
    for (std::size_t s = 0; s < seats.size(); ++s) {
      fits &= seats[s] >= std::max(snapshot.stages[s].target, 1U);
    }
    if (fits) best = std::max(best.value_or(0), slowest(snapshot));
  }
  return best;
}

SwarmSnapshot random_swarm(Rng& rng, bool equal_speeds, bool with_memory) {
  std::vector<StageFacts> stages(1 + rng.below(3));
  for (StageFacts& stage : stages) {
    stage.cost = 1 + static_cast<double>(rng.below(3));
    stage.target = static_cast<std::uint32_t>(rng.below(3));
    if (with_memory) stage.memory_bytes = 10 * rng.below(3);
  }
  std::vector<double> speeds(1 + rng.below(7));
  for (double& speed : speeds) speed = equal_speeds ? 1 : 1 + static_cast<double>(rng.below(8));
  SwarmSnapshot snapshot = swarm(std::move(stages), speeds);
  // Every peer fits some stage, so that the brute force may seat all.
  if (with_memory) {
    snapshot.stages[0].memory_bytes = 5;
    for (PeerFacts& peer : snapshot.peers) peer.memory_bytes = 5 + 5 * rng.below(4);
  }
  return snapshot;
}

TEST(SeatPeersTest, OptimalForEqualSpeeds) {
  Rng rng(21);
  for (int round = 0; round < 300; ++round) {
    const SwarmSnapshot snapshot = random_swarm(rng, /*equal_speeds=*/true, /*with_memory=*/false);
    const auto best = brute_force(snapshot);
    const auto seating = seat_peers(snapshot);
    ASSERT_EQ(seating.has_value(), best.has_value());
    if (!best) continue;
    ASSERT_EQ(seating->size(), snapshot.peers.size());
    ASSERT_DOUBLE_EQ(slowest(seated(snapshot)), *best) << "round " << round;
  }
}

TEST(SeatPeersTest, NearlyOptimalForUnequalSpeedsAndFeasibleWheneverPossible) {
  Rng rng(22);
  int solved = 0;
  int optimal = 0;
  double worst = 1;
  for (int round = 0; round < 600; ++round) {
    const SwarmSnapshot snapshot = random_swarm(rng, /*equal_speeds=*/false, round % 2 == 0);
    const auto best = brute_force(snapshot);
    const auto seating = seat_peers(snapshot);
    ASSERT_EQ(seating.has_value(), best.has_value()) << "round " << round;
    if (!best) continue;
    const SwarmSnapshot result = seated(snapshot);
    for (std::size_t s = 0; s < result.stages.size(); ++s) {
      ASSERT_GE(counts(result)[s], std::max(result.stages[s].target, 1U));
    }
    for (const PeerFacts& peer : result.peers) {
      ASSERT_TRUE(peer.memory_bytes == 0 ||
                  peer.memory_bytes >= result.stages[peer.stage->value].memory_bytes);
    }
    const double ratio = slowest(result) / *best;
    ++solved;
    optimal += ratio > 1 - 1e-9;
    worst = std::min(worst, ratio);
  }
  EXPECT_GT(solved, 300);
  EXPECT_GE(optimal, solved * 19 / 20) << optimal << " of " << solved;
  EXPECT_GE(worst, 0.75);
}

TEST(SeatPeersTest, ThousandsOfPeersAreSeatedAtOnce) {
  Rng rng(23);
  std::vector<double> speeds(10'000);
  for (double& speed : speeds) speed = 0.5 + rng.uniform();
  std::vector<StageFacts> stages(64);
  for (StageFacts& stage : stages) {
    stage.cost = 0.5 + rng.uniform();
    stage.target = static_cast<std::uint32_t>(100 * stage.cost);
  }
  const auto snapshot = seated(swarm(std::move(stages), speeds));
  const auto throughputs = stage_throughputs(snapshot);
  const auto [least, most] = std::minmax_element(throughputs.begin(), throughputs.end());
  EXPECT_LT(*most / *least, 1.02);
}

SwarmSnapshot with_seats(SwarmSnapshot snapshot, const std::vector<int>& seats) {
  for (std::size_t p = 0; p < seats.size(); ++p) {
    if (seats[p] >= 0) snapshot.peers[p].stage = StageId(static_cast<std::uint16_t>(seats[p]));
  }
  return snapshot;
}

const PeerFacts kJoiner{.peer = PeerId(99), .speed = 1, .stage = {}};

TEST(PlaceJoinerTest, TheLowestThroughputGetsIt) {
  const auto snapshot =
      with_seats(swarm({{.cost = 1}, {.cost = 2}, {.cost = 1}}, {2, 2, 2}), {0, 1, 2});
  EXPECT_EQ(place_joiner(snapshot, kJoiner).value(), StageId(1));
}

TEST(PlaceJoinerTest, AnEmptiedStageComesFirst) {
  const auto snapshot = with_seats(swarm({{.cost = 9, .target = 4}, {}, {}}, {1, 1, 1}), {0, 0, 1});
  EXPECT_EQ(place_joiner(snapshot, kJoiner).value(), StageId(2));
}

TEST(PlaceJoinerTest, AStageBelowItsTargetComesBeforeASlowOne) {
  const auto snapshot =
      with_seats(swarm({{.cost = 9, .target = 1}, {.target = 2}}, {1, 1}), {0, 1});
  EXPECT_EQ(place_joiner(snapshot, kJoiner).value(), StageId(1));
}

TEST(PlaceJoinerTest, TiesGoToTheLowerStage) {
  const auto snapshot = with_seats(swarm({{}, {}}, {1, 1}), {0, 1});
  EXPECT_EQ(place_joiner(snapshot, kJoiner).value(), StageId(0));
}

// Whatever comes next, each stage gets its second zone while that is possible.
TEST(PlaceJoinerTest, StagesFillUpOverZonesInWhateverOrderTheyCome) {
  const std::vector<std::string> zones = {"a", "b", "c"};
  std::vector<std::string> coming = {"a", "a", "b", "b", "c", "c"};
  do {
    SwarmSnapshot snapshot = swarm({{.target = 2}, {.target = 2}, {.target = 2}}, {});
    for (const std::string& zone : coming) {
      PeerFacts peer{.peer = PeerId(static_cast<std::uint32_t>(snapshot.peers.size() + 1)),
                     .stage = {},
                     .at = {.zone = zone, .host = std::to_string(snapshot.peers.size())}};
      peer.stage = place_joiner(snapshot, peer).value();
      snapshot.peers.push_back(peer);
    }
    EXPECT_EQ(counts(snapshot), (Counts{2, 2, 2}));
    for (std::uint16_t s = 0; s < 3; ++s) {
      std::set<std::string> of_stage;
      for (const PeerFacts& peer : snapshot.peers)
        if (peer.stage == StageId(s)) of_stage.insert(peer.at.zone);
      EXPECT_EQ(of_stage.size(), 2U) << "stage " << s << " as they come: " << coming[0] << coming[1]
                                     << coming[2] << coming[3] << coming[4] << coming[5];
    }
  } while (std::ranges::next_permutation(coming).found);
}

// No more average together.
TEST(PlaceJoinerTest, AFullStageGetsNobody) {
  const int most = Limits::stage_peers_max;
  std::vector<int> seats(static_cast<std::size_t>(most), 0);
  seats.insert(seats.end(), 2 * most - 1, 1);
  auto snapshot = with_seats(swarm({{.cost = 9}, {}}, std::vector<double>(seats.size(), 1)), seats);
  snapshot.peers.resize(2 * static_cast<std::size_t>(most) - 1);  // one place is left
  EXPECT_EQ(place_joiner(snapshot, kJoiner).value(), StageId(1));
  snapshot.peers.push_back({.peer = PeerId(9999), .speed = 1, .stage = StageId(1)});
  const auto refused = place_joiner(snapshot, kJoiner);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().what.find("as many as average together"), std::string::npos);
}

TEST(PlaceJoinerTest, MemoryDecidesBeforeNeed) {
  const auto snapshot = with_seats(
      swarm({{.memory_bytes = 100 * kMiB}, {.memory_bytes = 10 * kMiB}}, {1, 1}), {1, 1});
  PeerFacts small = kJoiner;
  small.memory_bytes = 50 * kMiB;
  EXPECT_EQ(place_joiner(snapshot, small).value(), StageId(1));
  small.memory_bytes = 5 * kMiB;
  const auto refused = place_joiner(snapshot, small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().what.find("every stage needs 10.0 MiB at least"), std::string::npos);
}

}  // namespace
}  // namespace swarmline
