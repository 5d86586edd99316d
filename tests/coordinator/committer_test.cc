// The commit of a step whose rounds are done, without a coordinator.
#include "pipeline/coordinator/steps/committer.h"

#include <limits>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "pipeline/protocol/knobs.h"
#include "tests/coordinator/states_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

class Committing : public ::testing::Test {
 protected:
  // Two serve stage 1; step 0 is sealed.
  explicit Committing(CoordinatorOptions options = bench_options(2, 4)) : bench(options) {
    bench.open_step(0);
    bench.complete_step(0);
    bench.round.begin(0, Term{1});
  }
  // The rounds are done; with the squared norms of the two stages' gradients.
  void average(double first = 9, double second = 16) {
    bench.round.on_reduced(bench.reduced(a, 1, first));
    bench.round.on_reduced(bench.reduced(b, 2, second));
    bench.round.on_reduced(bench.reduced(mate, 2, second));
  }
  wire::Commit told(const Seat& seat) {
    const auto commits = bench.told<wire::Commit>(seat, MessageKind::kCommit);
    EXPECT_EQ(commits.size(), 1U) << to_string(seat);
    return commits.empty() ? wire::Commit() : commits[0];
  }

  StatesBench bench;
  const Seat a = bench.seated(0), b = bench.seated(1), mate = bench.seated(1);
  Committer committer{{.shape = bench.shape,
                       .alarms = bench.alarms,
                       .journal = bench.journal,
                       .sessions = bench.sessions,
                       .members = bench.members,
                       .ledger = bench.ledger,
                       .round = bench.round,
                       .states = bench.states,
                       .standbys = bench.standbys,
                       .outbox = bench.outbox,
                       .rulings = bench.rulings}};
};

TEST_F(Committing, AllWhoHoldTheStateStepWithTheNumbersThatAreInTheJournal) {
  const Seat builds = bench.seated(1);
  bench.members.become(builds.peer, MemberState::kBuilding);
  committer.begin_with(6);
  average();
  bench.clock.run_for(90s);
  const auto record = committer.commit(Era{3});
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->gradient_norm, 5);
  EXPECT_EQ(record->version, 1U);
  EXPECT_EQ(record->tokens, 16U);
  EXPECT_EQ(record->era, 3U);
  EXPECT_EQ(record->updates, 7U);
  EXPECT_EQ(record->group_digests, (std::vector<std::uint64_t>{1, 2}));
  bench.flush();
  const auto journaled = bench.journal.read()->last_commit;
  ASSERT_TRUE(journaled.has_value());
  EXPECT_EQ(journaled->group_digests, record->group_digests);
  EXPECT_EQ(journaled->wall_seconds, bench.alarms.runtime().wall_seconds())
      << "how long ago a dead run died";
  for (const Seat& seat : {a, b, mate}) {
    const wire::Commit commit = told(seat);
    EXPECT_EQ(from_wire(commit.to()), seat);
    EXPECT_EQ(commit.groups(1).digest(), 2U);
    EXPECT_EQ(commit.learning_rate(), record->learning_rate);
    EXPECT_EQ(commit.clip_scale(), record->clip_scale);
    EXPECT_FALSE(commit.keep());
  }
  EXPECT_EQ(bench.count(builds, MessageKind::kCommit), 0U) << "it holds nothing yet";
}

TEST_F(Committing, NobodyHearsOfACommitThatIsNotInTheJournal) {
  average();
  bench.lead.expire();
  EXPECT_TRUE(committer.commit(Era{1}).has_value()) << "it is decided, and on its way there";
  for (const Seat& seat : {a, b, mate}) EXPECT_EQ(bench.count(seat, MessageKind::kCommit), 0U);
  EXPECT_TRUE(bench.writer.refused().has_value()) << "another coordinator leads";
}

TEST_F(Committing, AResultIsKeptWhereSomebodyHasYetToFetchIt) {
  const Seat joiner = bench.seated(1);
  bench.members.become(joiner.peer, MemberState::kFollowing);
  average();
  ASSERT_TRUE(committer.commit(Era{1}).has_value());
  EXPECT_TRUE(told(joiner).keep());
  EXPECT_TRUE(told(b).keep());
  EXPECT_FALSE(told(a).keep()) << "its stage has nobody who would";
}

TEST_F(Committing, AResultIsKeptForOneThatIsOnItsWay) {
  const Seat mover = bench.seated(1);
  bench.members.at(mover.peer).moves_to = StageId{0};
  bench.members.at(mover.peer).moves_since = bench.alarms.now();
  bench.lost(mover);
  bench.clock.run_for(knobs().move_time - 1ms);
  average();
  ASSERT_TRUE(committer.commit(Era{1}).has_value());
  EXPECT_TRUE(told(a).keep());
  EXPECT_FALSE(told(b).keep());
}

TEST_F(Committing, OneThatIsOnItsWayForTooLongIsNotExpected) {
  const Seat mover = bench.seated(1);
  bench.members.at(mover.peer).moves_to = StageId{0};
  bench.members.at(mover.peer).moves_since = bench.alarms.now();
  bench.lost(mover);
  bench.clock.run_for(knobs().move_time);
  average();
  ASSERT_TRUE(committer.commit(Era{1}).has_value());
  EXPECT_FALSE(told(a).keep());
}

TEST_F(Committing, ARunThatStopsAtAGradientThatIsNotFiniteCommitsNothing) {
  average(std::numeric_limits<double>::infinity(), 1);
  const MarkExpected mark("committer.not_finite");
  EXPECT_FALSE(committer.commit(Era{1}).has_value());
  const auto sentence = bench.rulings.take_failure();
  ASSERT_TRUE(sentence.has_value());
  EXPECT_NE(sentence->find("the gradient of step 1 is not finite"), std::string::npos);
  bench.flush();
  EXPECT_FALSE(bench.journal.read()->last_commit.has_value());
  EXPECT_EQ(bench.count(a, MessageKind::kCommit), 0U);
}

CoordinatorOptions that_skips() {
  CoordinatorOptions options = bench_options(2, 4);
  options.config.run.on_nonfinite = NonFinite::kSkip;
  return options;
}

class Skipping : public Committing {
 protected:
  Skipping() : Committing(that_skips()) {}
};

TEST_F(Skipping, AStepWithoutAFiniteGradientIsPassedOverByAll) {
  average(std::numeric_limits<double>::infinity(), 1);
  const auto record = committer.commit(Era{1});
  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(record->skipped);
  EXPECT_EQ(record->version, 1U);
  EXPECT_EQ(record->updates, 0U) << "nothing was updated";
  EXPECT_EQ(committer.updates(), 0U);
  EXPECT_TRUE(told(a).skipped());
  bench.flush();
  EXPECT_TRUE(bench.journal.read()->last_commit->skipped);
}

}  // namespace
}  // namespace swarmline
