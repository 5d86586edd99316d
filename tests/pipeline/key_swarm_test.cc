// Swarms whose links are between keys: who may come in does, who may not does not, and neither
// stalled handshakes nor a key that changes take anything from the run.
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/cluster/fake_stage_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

RunConfig run_of(std::vector<std::uint32_t> peers, std::uint32_t delay) {
  RunConfig config = small_run(std::move(peers), delay);
  config.run.steps = 200;
  config.net.standby = {kStandbyAddress};
  config.net.collect_seconds = 5;
  return config;
}

SimClusterOptions options_of(const RunConfig& config) {
  SimClusterOptions options = swarm_of(config, make_fake_model);
  options.keys = true;
  return options;
}

class KeySwarm : public testing::TestWithParam<std::uint32_t> {
 protected:
  RunConfig config() const { return run_of({2, 2}, GetParam()); }
  // To its end: all bits are there, nobody was lost, and no oracle has anything to say.
  void expect_exact(Swarm& swarm, std::size_t lost = 0) {
    swarm.finish();
    expect_equal(swarm.cluster().parameters(), one_each(config()));
    EXPECT_EQ(events(swarm, "peer_lost"), lost) << history(swarm);
    EXPECT_EQ(events(swarm, "new_era"), 0U) << history(swarm);
    for (const OracleFinding& finding : swarm.oracles().findings())
      ADD_FAILURE() << to_string(finding.rule) << ": " << finding.what;
  }
  static std::uint64_t stalled(Swarm& swarm) {
    const auto& handshakes = swarm.cluster().network().handshakes();
    return handshakes.late + handshakes.given_up;
  }
  // Ends it, and says how; the run goes on meanwhile.
  std::string how_a_stranger_ends(SimTicket ticket, int exit_code) {
    Swarm swarm(options_of(config()));
    swarm.until_committed(2);
    const std::size_t stranger = swarm.cluster().add_peer({.ticket = ticket});
    swarm.cluster().runtime().hurts(SimCluster::node_of_peer(stranger));
    EXPECT_TRUE(swarm.until([&] { return swarm.cluster().outcome_of(stranger).has_value(); }, 20s));
    const auto outcome = swarm.cluster().outcome_of(stranger);
    if (!outcome) return "it does not end";
    EXPECT_EQ(outcome->exit_code, exit_code) << outcome->sentence;
    EXPECT_EQ(swarm.cluster().seat_of(stranger), Seat());
    EXPECT_EQ(events(swarm, "peer_joined"), 4U) << history(swarm);
    EXPECT_GT(swarm.cluster().network().handshakes().failed, 0U);
    expect_exact(swarm);
    return outcome->sentence;
  }
};

TEST_P(KeySwarm, EndsAsOneWithoutKeys) {
  Swarm swarm(options_of(config()));
  expect_exact(swarm);
  EXPECT_EQ(swarm.cluster().network().handshakes().failed, 0U);
  EXPECT_GE(swarm.cluster().network().handshakes().made, 2 * 4U);
  for (const SeatRecord& seat : *swarm.cluster().journal().seats())
    EXPECT_EQ(seat.key.size(), 2 * KeyHash::kBytes) << "bound to its key";
}

TEST_P(KeySwarm, AJoinerWhoseInviteIsOverIsRefusedAndTheRunGoesOn) {
  const MarkExpected rule("guard.invite_refused");
  EXPECT_NE(how_a_stranger_ends(SimTicket::kExpired, 3).find("its invite expired 60 min ago"),
            std::string::npos);
  EXPECT_NE(how_a_stranger_ends(SimTicket::kRevoked, 3).find("was revoked"), std::string::npos);
  EXPECT_NE(how_a_stranger_ends(SimTicket::kUsedUp, 3).find("was for 1 and they have come"),
            std::string::npos);
}

TEST_P(KeySwarm, AJoinerThatFindsAnotherKeyThereRefusesIt) {
  const MarkExpected rule("sim.another_key_shown");
  const std::string sentence = how_a_stranger_ends(SimTicket::kOtherRun, 1);
  EXPECT_NE(sentence.find("it is another run's"), std::string::npos) << sentence;
}

TEST_P(KeySwarm, AnothersSeatIsShownInVain) {
  EXPECT_NE(how_a_stranger_ends(SimTicket::kStolenSeat, 3).find("not one of this run"),
            std::string::npos);
  // To peers, too.
  const MarkExpected rule("guard.no_seat_shown");
  Swarm swarm(options_of(config()));
  swarm.until_committed(2);
  const SimNodeId thief =
      SimCluster::node_of_peer(swarm.cluster().add_peer({.ticket = SimTicket::kStolenSeat}));
  swarm.cluster().runtime().hurts(thief);
  std::string refusals;
  for (SimNodeId node = 1; node < thief; ++node)
    swarm.cluster().network().node(thief).connect(
        {"sim", static_cast<std::uint16_t>(node)}, 5s,
        [&](const Result<std::shared_ptr<Connection>>& made) {
          refusals += made ? "taken" : made.error().code == ErrorCode::kRefused ? "." : "?";
        });
  ASSERT_TRUE(swarm.until([&] { return refusals.size() >= 4; }, 20s));
  EXPECT_EQ(refusals, "....");
  expect_exact(swarm);
}

// A newcomer stalls in its handshake with the coordinator, and one with its mates, while steps are
// committed; both come in once they speak.
TEST_P(KeySwarm, AHandshakeStallsAtAJoinWhileCommitsGoOn) {
  RunConfig longer = config();
  longer.run.steps = 1200;
  const MarkExpected rule("sim.handshake_given_up");
  Swarm swarm(options_of(longer));
  swarm.until_committed(2);
  const std::size_t joiner = swarm.cluster().add_peer({});
  const SimNodeId node = SimCluster::node_of_peer(joiner);
  swarm.cluster().network().stall_handshakes(node, true);
  ASSERT_TRUE(swarm.until([&] { return stalled(swarm) > 1; }, 30s));
  EXPECT_GT(commits_of(swarm.cluster()), 20U) << "nobody waits for it, who dials again";
  EXPECT_EQ(swarm.cluster().seat_of(joiner), Seat());
  swarm.cluster().network().stall_handshakes(node, false);
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_joined") == 5; }, 30s))
      << history(swarm);
  // It has a seat, and no links yet: what it dials next stalls.
  swarm.cluster().network().stall_handshakes(node, true);
  const std::uint64_t before = stalled(swarm);
  const std::uint64_t commits = commits_of(swarm.cluster());
  ASSERT_TRUE(swarm.until([&] { return stalled(swarm) > before; }, 60s));
  EXPECT_GT(commits_of(swarm.cluster()), commits) << "nobody waits for it";
  swarm.cluster().network().stall_handshakes(node, false);
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().serves(joiner); }, 120s)) << history(swarm);
  swarm.finish();
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
}

// The coordinator takes connections and says nothing: its links go on, and who comes meanwhile
// comes in afterwards.
TEST_P(KeySwarm, ACoordinatorThatStallsInHandshakesLosesNobody) {
  Swarm swarm(options_of(config()));
  swarm.until_committed(2);
  swarm.cluster().network().stall_handshakes(kCoordinatorNode, true);
  const std::size_t joiner = swarm.cluster().add_peer({});
  ASSERT_TRUE(swarm.until([&] { return stalled(swarm) > 1; }, 60s));
  swarm.cluster().network().stall_handshakes(kCoordinatorNode, false);
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().serves(joiner); }, 60s)) << history(swarm);
  swarm.finish();
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
}

TEST_P(KeySwarm, AKeyThatChangesIsFollowedByAllWhoHoldTheOldString) {
  const MarkExpected follows("trust.follows_the_runs_key"), certified("link.certified_anew");
  Swarm swarm(options_of(config()));
  SimCluster& cluster = swarm.cluster();
  swarm.until_committed(2);
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(cluster.keys()->rotate());
    ASSERT_TRUE(swarm.until([&] { return cluster.keys()->leads_with(kCoordinatorNode); }, 5s));
    cluster.runtime().run_for(1s);  // heartbeats bring certificates
    const std::size_t joiner = cluster.add_peer({});
    ASSERT_TRUE(swarm.until([&] { return cluster.serves(joiner); }, 60s)) << history(swarm);
  }
  // Links that are made now are judged by the newest key.
  for (SimNodeId one = 1; one <= 7; ++one)
    for (SimNodeId other = one + 1; other <= 7; ++other) cluster.network().cut(one, other);
  swarm.finish();
  EXPECT_EQ(events(swarm, "key_changed"), 4U) << history(swarm);
  EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
}

// The coordinator dies before, while, and after it has heard of the new key; another leads, here or
// elsewhere: everybody follows, seats are kept, and a string of the first key still joins.
TEST_P(KeySwarm, AKeyChangesWhileTheCoordinatorFailsOver) {
  for (const bool elsewhere : {false, true})
    for (const Duration heard_for : {0ms, 300ms, 500ms, 501ms, 600ms, 2000ms}) {
      SCOPED_TRACE(fmt::format("{} s after the key changed, {}", to_seconds(heard_for),
                               elsewhere ? "a standby" : "the same"));
      Swarm swarm(options_of(config()));
      SimCluster& cluster = swarm.cluster();
      swarm.until_committed(2);
      ASSERT_TRUE(cluster.keys()->rotate());
      cluster.runtime().run_for(heard_for);
      cluster.kill_coordinator();
      cluster.runtime().run_for(300ms);
      elsewhere ? cluster.take_over() : cluster.restart_coordinator();
      for (int more = 0; more < 2; ++more) cluster.add_peer({});  // strings of before and after
      ASSERT_TRUE(swarm.until([&] { return events(swarm, "peer_joined") == 6; }, 60s))
          << history(swarm);
      swarm.finish();
      EXPECT_TRUE(cluster.keys()->leads_with(elsewhere ? kStandbyNode : kCoordinatorNode));
      EXPECT_EQ(events(swarm, "peer_resumed"), 4U) << history(swarm);
      EXPECT_EQ(events(swarm, "peer_lost"), 0U) << history(swarm);
      EXPECT_EQ(events(swarm, "key_changed"), 2U) << history(swarm);
      if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Delay, KeySwarm, testing::Values(0U, 1U));

}  // namespace
}  // namespace swarmline
