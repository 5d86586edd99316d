#include "pipeline/coordinator/steps/replica_audit.h"

#include <gtest/gtest.h>

#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using Kind = ReplicaAudit::Verdict::Kind;

Seat seat_of(std::uint32_t peer, std::uint16_t stage = 0) {
  return {PeerId{peer}, StageId{stage}, Incarnation{1}};
}

TEST(ReplicaAudit, AMinorityIsNamedAsSoonAsMostAgree) {
  ReplicaAudit audit;
  audit.say(seat_of(1), 4, 7);
  audit.say(seat_of(2), 4, 8);
  EXPECT_EQ(audit.compare(StageId{0}, 4, 3).kind, Kind::kUnknown) << "the third may tell";
  const MarkExpected minority("replica_audit.minority");
  audit.say(seat_of(3), 4, 7);
  const auto verdict = audit.compare(StageId{0}, 4, 3);
  EXPECT_EQ(verdict.kind, Kind::kMinority);
  EXPECT_EQ(verdict.wrong, std::vector<Seat>{seat_of(2)});
  audit.forget(seat_of(2));
  EXPECT_EQ(audit.compare(StageId{0}, 4, 2).kind, Kind::kSame);
  EXPECT_EQ(audit.compare(StageId{1}, 4, 1).kind, Kind::kSame) << "nobody has said anything";
  audit.check_invariants();
}

TEST(ReplicaAudit, OfTwoThatDifferNobodyKnowsWhoIsRight) {
  ReplicaAudit audit;
  audit.say(seat_of(1), 4, 7);
  audit.say(seat_of(2), 4, 8);
  const MarkExpected tie("replica_audit.tie");
  const auto verdict = audit.compare(StageId{0}, 4, 2);
  EXPECT_EQ(verdict.kind, Kind::kTie);
  EXPECT_EQ(verdict.votes.size(), 2U);
  EXPECT_NE(verdict.one, verdict.other);
}

TEST(ReplicaAudit, OldVersionsAreForgotten) {
  ReplicaAudit audit;
  audit.say(seat_of(1), 1, 7);
  audit.say(seat_of(1), 3, 7);
  EXPECT_TRUE(audit.knows(StageId{0}, 1));
  audit.say(seat_of(1), 4, 9);
  EXPECT_FALSE(audit.knows(StageId{0}, 1));
  EXPECT_TRUE(audit.has_said(StageId{0}, 4, 9));
  EXPECT_FALSE(audit.has_said(StageId{0}, 4, 7));
}

TEST(ReplicaAudit, AFollowerIsComparedWithAMateThatHoldsItsVersion) {
  ReplicaAudit audit;
  audit.follower_ready(seat_of(5), 4, 7);
  EXPECT_TRUE(audit.has_followers());
  EXPECT_TRUE(audit.followers_of(StageId{0}, 4).empty()) << "no mate has said anything";
  audit.say(seat_of(1), 4, 7);
  ASSERT_EQ(audit.followers_of(StageId{0}, 4).size(), 1U);
  EXPECT_TRUE(audit.followers_of(StageId{0}, 4)[0].same);
  EXPECT_TRUE(audit.followers_of(StageId{0}, 3).empty());
  audit.follower_ready(seat_of(5), 4, 8);
  EXPECT_FALSE(audit.followers_of(StageId{0}, 4)[0].same);
  audit.take_follower(seat_of(5));
  EXPECT_FALSE(audit.has_followers());
}

}  // namespace
}  // namespace swarmline
