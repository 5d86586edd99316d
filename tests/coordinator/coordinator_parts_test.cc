// The coordinator's parts alone: who sits where, which phase comes when, what the groups report.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "pipeline/coordinator/members/candidate_desk.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/steps/reduce_board.h"
#include "pipeline/coordinator/steps/report_pace.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

Instant at(Duration since_start) {
  return Instant(1s + since_start);
}

// ---- ReportPace ---------------------------------------------------------------------------------

// A step with reports that far apart.
void report(ReportPace& pace, std::uint64_t step, const std::vector<Duration>& pauses) {
  Duration now = step * 1h;
  pace.on_report(step, at(now));
  for (const Duration pause : pauses) pace.on_report(step, at(now += pause));
  pace.on_complete(step);
}

TEST(ReportPace, WaitsForHalfAsLongAgainAsStepsUsuallyPause) {
  ReportPace pace;
  for (std::uint64_t step = 0; step < UsualLongest::kStepsMin; ++step) {
    EXPECT_FALSE(pace.patience().has_value()) << "nothing is known after " << step << " steps";
    report(pace, step, {100ms, 200ms, 10ms});
  }
  EXPECT_EQ(pace.patience(), 300ms);
  report(pace, 10, {10s, 10s});
  EXPECT_EQ(pace.patience(), 300ms) << "one step that was held up says nothing";
  for (std::uint64_t step = 11; step < 11 + UsualLongest::kStepsKept; ++step)
    report(pace, step, {1s});
  EXPECT_EQ(pace.patience(), 1500ms) << "all of them do";
}

TEST(ReportPace, HasAFloorAndCountsWholeStepsAlone) {
  ReportPace pace;
  for (std::uint64_t step = 0; step < 4; ++step) report(pace, step, {1ms, 2ms});
  EXPECT_EQ(pace.patience(), knobs().tail_patience_min);
  // Given up in a new era, and begun again: neither counts what lies between.
  for (std::uint64_t i = 0; i < UsualLongest::kStepsKept; ++i) {
    pace.on_report(100 + i, at((100 + i) * 1h));
    pace.on_report(100 + i, at((100 + i) * 1h + 30min));
    pace.forget(100 + i);
    pace.on_complete(100 + i);
  }
  EXPECT_EQ(pace.patience(), knobs().tail_patience_min);
}

TEST(ReportPace, OfStepsSideBySideEachHasItsOwnPauses) {
  ReportPace pace;
  for (std::uint64_t step = 0; step < UsualLongest::kStepsMin; ++step) {
    pace.on_report(2 * step, at(step * 1h));
    pace.on_report(2 * step + 1, at(step * 1h + 200ms));
    pace.on_report(2 * step, at(step * 1h + 400ms));
    EXPECT_EQ(pace.last_report(2 * step), at(step * 1h + 400ms));
    EXPECT_EQ(pace.last_report(2 * step + 1), at(step * 1h + 200ms));
    pace.on_complete(2 * step);
    EXPECT_FALSE(pace.last_report(2 * step).has_value());
    pace.on_report(2 * step + 1, at(step * 1h + 600ms));
    pace.on_complete(2 * step + 1);
  }
  EXPECT_EQ(pace.patience(), 600ms) << "half as long again as 400 ms";
}

// ---- CandidateDesk ------------------------------------------------------------------------------

class Candidates : public testing::Test {
 protected:
  static Seat seat(std::uint16_t stage, std::uint32_t peer) {
    return {PeerId{peer}, StageId{stage}, Incarnation{1}};
  }
  std::set<Seat> update() { return desk_.update(StageId{0}, senders_, speeds_); }
  // How many know each receiver.
  std::map<Seat, std::size_t> senders() const {
    std::map<Seat, std::size_t> count;
    for (const auto& [receiver, speed] : speeds_) count[receiver] = 0;
    for (const Seat& sender : senders_) {
      EXPECT_EQ(desk_.known_to(sender).size(), std::min(CandidateDesk::kKnown, speeds_.size()));
      for (const Seat& receiver : desk_.known_to(sender)) ++count.at(receiver);
    }
    return count;
  }
  void make(std::uint32_t sending, std::uint32_t receiving) {
    for (std::uint32_t i = 0; i < sending; ++i) senders_.push_back(seat(0, 1 + i));
    for (std::uint32_t i = 0; i < receiving; ++i) speeds_[seat(1, 1001 + i)] = 1;
  }

  CandidateDesk desk_;
  std::vector<Seat> senders_;
  std::map<Seat, double> speeds_;
};

TEST_F(Candidates, OfAFewAllAreKnown) {
  make(5, 16);
  EXPECT_EQ(update().size(), 5U);
  for (const auto& [receiver, count] : senders()) EXPECT_EQ(count, 5U);
  EXPECT_TRUE(update().empty());
  EXPECT_TRUE(desk_.known_to(seat(3, 1)).empty());
}

TEST_F(Candidates, OfManyEachIsKnownToAsManyWhoeverComesAndGoes) {
  make(100, 100);
  update();
  for (const auto& [receiver, count] : senders()) EXPECT_EQ(count, 16U);
  std::uint32_t next = 2000;
  for (int round = 0; round < 300; ++round) {
    // Sixteen know whoever goes, and are to know whoever comes.
    const auto gone = std::next(speeds_.begin(), round * 37 % 100);
    speeds_.erase(gone);
    EXPECT_LE(update().size(), 17U);
    speeds_[seat(1, next++)] = 1;
    EXPECT_LE(update().size(), 17U);
    senders_.erase(senders_.begin() + round * 53 % 100);
    update();
    senders_.push_back(seat(0, next++));
    EXPECT_LE(update().size(), 17U);
    for (const auto& [receiver, count] : senders()) {
      EXPECT_GE(count, 13U);
      EXPECT_LE(count, 19U);
    }
  }
}

TEST_F(Candidates, AFastOneIsKnownToMore) {
  make(60, 40);
  update();
  speeds_.begin()->second = 2;
  speeds_.rbegin()->second = 0.25;
  EXPECT_LE(update().size(), 60U);
  // Of 60 x 16 places, 40.25 shares.
  EXPECT_NEAR(static_cast<double>(senders().at(speeds_.begin()->first)), 46.5, 2.5);
  EXPECT_NEAR(static_cast<double>(senders().at(speeds_.rbegin()->first)), 5.8, 2.5);
  speeds_.begin()->second = 1000;  // everybody, and no more
  update();
  EXPECT_EQ(senders().at(speeds_.begin()->first), 60U);
  EXPECT_TRUE(update().empty());
}

// ---- RunSequence --------------------------------------------------------------------------------

std::string opened(RunSequence& sequence, bool all_leased = false) {
  std::string text;
  for (const auto& opening : sequence.take_openings(all_leased))
    text += (text.empty() ? "" : ", ") +
            (opening.phase.kind == PhaseKind::kTrain ? std::string("step ")
                                                     : std::string("eval of version ")) +
            std::to_string(opening.phase.step) + " on " + std::to_string(opening.version.value);
  return text;
}

TEST(RunSequence, WithoutDelayAStepOpensOnTheCommitBefore) {
  RunSequence sequence({.steps = 2, .delay = 0, .eval_every_steps = 0, .eval = false});
  EXPECT_EQ(opened(sequence), "step 0 on 0");
  EXPECT_EQ(opened(sequence), "");
  EXPECT_FALSE(sequence.may_seal(1));
  EXPECT_TRUE(sequence.may_seal(0));
  sequence.on_sealed(0);
  EXPECT_EQ(opened(sequence), "");
  sequence.on_committed(0);
  EXPECT_EQ(opened(sequence), "step 1 on 1");
  sequence.on_sealed(1);
  EXPECT_FALSE(sequence.finished());
  sequence.on_committed(1);
  EXPECT_EQ(opened(sequence), "");
  EXPECT_TRUE(sequence.finished());
}

TEST(RunSequence, WithDelayAStepOpensWhileTheOneBeforeIsAveraged) {
  RunSequence sequence({.steps = 3, .delay = 1, .eval_every_steps = 0, .eval = false});
  EXPECT_EQ(opened(sequence), "step 0 on 0");
  sequence.on_sealed(0);
  EXPECT_EQ(opened(sequence), "step 1 on 0");
  EXPECT_FALSE(sequence.may_seal(1)) << "its version is the one that step 0's commit replaces";
  sequence.on_committed(0);
  EXPECT_TRUE(sequence.may_seal(1));
  sequence.on_sealed(1);
  EXPECT_EQ(opened(sequence), "step 2 on 1");
  sequence.on_committed(1);
  sequence.on_sealed(2);
  sequence.on_committed(2);
  EXPECT_TRUE(sequence.finished());
}

TEST(RunSequence, WithDelayAStepOpensBesideOneThatHasNothingLeftToLease) {
  RunSequence sequence({.steps = 4, .delay = 1, .overlaps = true});
  EXPECT_EQ(opened(sequence), "step 0 on 0");
  EXPECT_EQ(opened(sequence, /*all_leased=*/false), "");
  EXPECT_TRUE(sequence.may_run_ahead());
  EXPECT_EQ(opened(sequence, /*all_leased=*/true), "step 1 on 0");
  EXPECT_FALSE(sequence.may_run_ahead()) << "two are open";
  EXPECT_EQ(opened(sequence, true), "");
  EXPECT_FALSE(sequence.may_seal(1));
  sequence.on_sealed(0);
  EXPECT_EQ(opened(sequence, true), "") << "version 1 is not there yet";
  sequence.on_committed(0);
  EXPECT_EQ(opened(sequence, false), "");
  EXPECT_EQ(opened(sequence, true), "step 2 on 1");
  EXPECT_TRUE(sequence.may_seal(1));
  sequence.on_sealed(1);
  sequence.on_committed(1);
  sequence.drain();
  EXPECT_FALSE(sequence.may_run_ahead());
  EXPECT_EQ(opened(sequence, true), "");
  sequence.on_sealed(2);
  sequence.on_committed(2);
  EXPECT_TRUE(sequence.finished());
}

TEST(RunSequence, WithoutDelayOrWhereItMayNotNoStepOpensBesideAnother) {
  for (const SequenceOptions& options :
       {SequenceOptions{.steps = 4, .overlaps = true}, SequenceOptions{.steps = 4, .delay = 1}}) {
    RunSequence sequence(options);
    EXPECT_EQ(opened(sequence), "step 0 on 0");
    EXPECT_FALSE(sequence.may_run_ahead());
    EXPECT_EQ(opened(sequence, true), "");
  }
}

// The step before computes on an older version, which its seal does not end.
TEST(RunSequence, WithDelayAnEvaluationHoldsBackTheStepOnItsVersionAlone) {
  RunSequence sequence(
      {.steps = 4, .delay = 1, .eval_every_steps = 1, .eval = true, .overlaps = true});
  EXPECT_EQ(opened(sequence, true), "step 0 on 0");
  EXPECT_EQ(opened(sequence, true), "step 1 on 0");
  sequence.on_sealed(0);
  sequence.on_committed(0);
  EXPECT_EQ(opened(sequence, true), "eval of version 1 on 1, step 2 on 1");
  EXPECT_TRUE(sequence.may_seal(1));
  sequence.on_sealed(1);
  sequence.on_committed(1);
  EXPECT_FALSE(sequence.may_seal(2));
  sequence.on_evaluated(1);
  EXPECT_TRUE(sequence.may_seal(2));
}

// The segment's first two steps compute on its first version, as a run's do.
TEST(RunSequence, ADelayMayBeginLater) {
  const auto versions = [](std::uint64_t since) {
    RunSequence sequence({.steps = 20, .delay = 1, .begin = 4, .delayed_since = since});
    std::vector<std::uint64_t> versions;
    for (std::uint64_t step = 4; step < 7; ++step) {
      for (const auto& opening : sequence.take_openings())
        versions.push_back(opening.version.value);
      sequence.on_sealed(step);
      for (const auto& opening : sequence.take_openings())
        versions.push_back(opening.version.value);
      sequence.on_committed(step);
    }
    return versions;
  };
  EXPECT_EQ(versions(4), (std::vector<std::uint64_t>{4, 4, 5, 6}));
  EXPECT_EQ(versions(0), (std::vector<std::uint64_t>{3, 4, 5, 6}));
}

TEST(RunSequence, AnEvaluationHoldsBackTheSealThatWouldEndItsVersion) {
  RunSequence sequence({.steps = 2, .delay = 0, .eval_every_steps = 1, .eval = true});
  EXPECT_EQ(opened(sequence), "step 0 on 0") << "the initialisation is not evaluated";
  sequence.on_sealed(0);
  sequence.on_committed(0);
  EXPECT_EQ(opened(sequence), "eval of version 1 on 1, step 1 on 1");
  EXPECT_FALSE(sequence.may_seal(1));
  sequence.on_evaluated(1);
  EXPECT_TRUE(sequence.may_seal(1));
  sequence.on_sealed(1);
  sequence.on_committed(1);
  EXPECT_FALSE(sequence.finished()) << "the last version is evaluated too";
  EXPECT_EQ(opened(sequence), "eval of version 2 on 2");
  EXPECT_FALSE(sequence.finished());
  sequence.on_evaluated(2);
  EXPECT_TRUE(sequence.finished());
}

// As another coordinator left it: one step open, or with a delay two.
TEST(RunSequence, GoesOnWithTheStepsThatWereOpen) {
  RunSequence one({.steps = 4, .eval_every_steps = 2, .eval = true});
  one.restore(2, false, 0);
  EXPECT_EQ(opened(one), "eval of version 2 on 2, step 2 on 2");
  RunSequence evaluated({.steps = 4, .eval_every_steps = 2, .eval = true});
  evaluated.restore(2, false, 2);
  EXPECT_EQ(opened(evaluated), "step 2 on 2");
  RunSequence delayed({.steps = 4, .delay = 1});
  delayed.restore(2, true, 0);
  EXPECT_EQ(opened(delayed), "step 2 on 1, step 3 on 2");
  EXPECT_TRUE(delayed.may_seal(2));
  EXPECT_FALSE(delayed.may_seal(3));
  delayed.on_sealed(2);
  EXPECT_EQ(opened(delayed), "");
  delayed.on_committed(2);
  EXPECT_TRUE(delayed.may_seal(3));
  delayed.on_sealed(3);
  delayed.on_committed(3);
  EXPECT_TRUE(delayed.finished());
}

TEST(RunSequence, GoesOnFromACheckpoint) {
  RunSequence sequence({.steps = 6, .eval_every_steps = 2, .eval = true, .begin = 4});
  EXPECT_EQ(sequence.committed(), 4U);
  EXPECT_EQ(opened(sequence), "eval of version 4 on 4, step 4 on 4") << "it may have been lost";
  sequence.on_evaluated(4);
  EXPECT_TRUE(sequence.may_seal(4));
  sequence.on_sealed(4);
  sequence.on_committed(4);
  EXPECT_EQ(opened(sequence), "step 5 on 5");
}

// The first step computes on the version before the one that is committed, as it would have.
TEST(RunSequence, GoesOnFromACheckpointWithDelay) {
  RunSequence sequence({.steps = 8, .delay = 1, .begin = 4});
  EXPECT_EQ(opened(sequence), "step 4 on 3");
  EXPECT_TRUE(sequence.may_seal(4));
  sequence.on_sealed(4);
  EXPECT_EQ(opened(sequence), "step 5 on 4");
  EXPECT_FALSE(sequence.may_seal(5));
  sequence.on_committed(4);
  EXPECT_TRUE(sequence.may_seal(5));
}

TEST(RunSequence, NothingIsLeftAfterTheLastCheckpoint) {
  RunSequence sequence({.steps = 6, .delay = 1, .begin = 6});
  EXPECT_EQ(opened(sequence), "");
  EXPECT_TRUE(sequence.finished());
}

TEST(RunSequence, ADrainEndsWithTheOpenStep) {
  RunSequence sequence({.steps = 100, .delay = 1, .eval_every_steps = 1, .eval = true});
  EXPECT_EQ(opened(sequence), "step 0 on 0");
  sequence.on_sealed(0);
  EXPECT_EQ(opened(sequence), "step 1 on 0");
  sequence.drain();
  sequence.on_committed(0);
  EXPECT_FALSE(sequence.finished()) << "step 1 is open";
  sequence.on_sealed(1);
  EXPECT_EQ(opened(sequence), "");
  sequence.on_committed(1);
  EXPECT_EQ(opened(sequence), "");
  EXPECT_TRUE(sequence.finished());
}

// ---- ReduceBoard --------------------------------------------------------------------------------

Seat seat_of(std::uint32_t peer, std::uint16_t stage) {
  return {PeerId{peer}, StageId{stage}, Incarnation{1}};
}

wire::Reduced reduced(const Seat& seat, std::uint32_t group, std::uint64_t digest,
                      double squares = 1) {
  wire::Reduced report;
  *report.mutable_seat() = to_wire(seat);
  report.mutable_phase()->set_step(4);
  report.set_group(group);
  report.set_digest(digest);
  report.set_sum_of_squares(squares);
  report.set_reduce_bytes(10);
  return report;
}

TEST(ReduceBoard, IsDoneWhenEveryMemberOfEveryGroupHasTheSameBits) {
  ReduceBoard board;
  const Seat a = seat_of(1, 0), b = seat_of(2, 0), c = seat_of(3, 1);
  EXPECT_FALSE(board.done());
  board.begin(4, {{GroupId{0}, {a, b}}, {GroupId{1}, {c}}});
  EXPECT_TRUE(board.report(reduced(a, 0, 77, 2)));
  EXPECT_FALSE(board.report(reduced(a, 0, 77, 2))) << "said twice, counted once";
  EXPECT_EQ(board.missing(), (std::vector<Seat>{b, c}));
  EXPECT_TRUE(board.report(reduced(c, 1, 5, 3)));
  EXPECT_FALSE(board.done());
  EXPECT_TRUE(board.report(reduced(b, 0, 77, 2)));
  EXPECT_TRUE(board.done());
  EXPECT_EQ(board.sum_of_squares(), 5) << "each group once, not each member";
  EXPECT_EQ(board.reduce_bytes(), 30U);
  ASSERT_EQ(board.results().size(), 2U);
  EXPECT_EQ(board.results()[0].digest, 77U);
}

TEST(ReduceBoard, StrangersAndOtherStepsChangeNothing) {
  ReduceBoard board;
  const Seat a = seat_of(1, 0);
  board.begin(4, {{GroupId{0}, {a}}});
  EXPECT_FALSE(board.report(reduced(seat_of(9, 0), 0, 1)));
  EXPECT_FALSE(board.report(reduced(a, 3, 1)));
  wire::Reduced other = reduced(a, 0, 1);
  other.mutable_phase()->set_step(3);
  EXPECT_FALSE(board.report(other));
  other.mutable_phase()->set_step(4);
  other.mutable_phase()->set_eval(true);
  EXPECT_FALSE(board.report(other));
  EXPECT_FALSE(board.done());
}

TEST(ReduceBoard, AMinorityFetchesFromTheOthersAndATieIsAveragedAgain) {
  ReduceBoard board;
  const Seat a = seat_of(1, 0), b = seat_of(2, 0), c = seat_of(3, 0);
  board.begin(4, {{GroupId{0}, {a, b, c}}});
  EXPECT_TRUE(board.report(reduced(a, 0, 77)));
  EXPECT_TRUE(board.report(reduced(b, 0, 78)));
  EXPECT_TRUE(board.settle_differences(GroupId{0}).empty()) << "the third may tell who is right";
  EXPECT_TRUE(board.report(reduced(c, 0, 77)));
  EXPECT_FALSE(board.done());
  EXPECT_EQ(board.settle_differences(GroupId{0}), std::vector<Seat>{b});
  EXPECT_EQ(board.digest(GroupId{0}), 77U);
  EXPECT_EQ(board.holders(GroupId{0}), (std::vector<Seat>{a, c}));
  EXPECT_TRUE(board.report(reduced(b, 0, 77))) << "fetched";
  EXPECT_TRUE(board.done());

  board.begin(4, {{GroupId{0}, {a, b}}});
  EXPECT_TRUE(board.report(reduced(a, 0, 77)));
  EXPECT_TRUE(board.report(reduced(b, 0, 78)));
  EXPECT_TRUE(board.settle_differences(GroupId{0}).empty());
  EXPECT_EQ(board.broken(), std::vector{GroupId{0}});
  EXPECT_EQ(board.restart(GroupId{0}, {a, b}), RoundAttempt{1});
  EXPECT_FALSE(board.report(reduced(a, 0, 77))) << "of the first attempt";
}

TEST(ReduceBoard, AFewFetchAtATimeAndEachIsOneMoreToFetchFrom) {
  ReduceBoard board;
  ReduceBoard::Members members;
  for (std::uint32_t peer = 1; peer <= 30; ++peer) members.push_back(seat_of(peer, 0));
  board.begin(4, {{GroupId{0}, members}});
  board.all_late(GroupId{0});
  EXPECT_TRUE(board.take_late(GroupId{0}).empty()) << "nobody has it";
  EXPECT_TRUE(board.report(reduced(members[0], 0, 77)));
  ReduceBoard::Members fetching = board.take_late(GroupId{0});
  EXPECT_EQ(fetching, (ReduceBoard::Members{members[1], members[2]}));
  EXPECT_TRUE(board.take_late(GroupId{0}).empty()) << "they are at it";
  // Its own averaging ended.
  EXPECT_TRUE(board.report(reduced(members[3], 0, 77)));
  EXPECT_EQ(board.take_late(GroupId{0}), (ReduceBoard::Members{members[4], members[5]}));
  // Who is lost leaves its place; who is left is told again when all are late again.
  board.lose(members[1]);
  EXPECT_EQ(board.take_late(GroupId{0}), (ReduceBoard::Members{members[6]}));
  board.all_late(GroupId{0});
  EXPECT_EQ(board.take_late(GroupId{0}),
            (ReduceBoard::Members{members[2], members[4], members[5], members[6]}));
  for (int wave = 0; !board.done(); ++wave) {
    ASSERT_LT(wave, 4);
    if (wave == 0) fetching = {members[2], members[4], members[5], members[6]};
    for (const Seat& seat : fetching) EXPECT_TRUE(board.report(reduced(seat, 0, 77)));
    fetching = board.take_late(GroupId{0});
  }
}

TEST(ReduceBoard, AResultOutlivesItsMakersWhileOneHolderLives) {
  ReduceBoard board;
  const Seat a = seat_of(1, 0), b = seat_of(2, 0), c = seat_of(3, 0), d = seat_of(4, 1);
  board.begin(4, {{GroupId{0}, {a, b, c}}, {GroupId{1}, {d}}});
  EXPECT_TRUE(board.report(reduced(a, 0, 77)));
  board.lose(b);
  EXPECT_TRUE(board.broken().empty());
  EXPECT_EQ(board.missing(GroupId{0}), std::vector<Seat>{c});
  board.lose(a);  // the only holder, and c has nothing yet
  EXPECT_EQ(board.broken(), std::vector{GroupId{0}});
  EXPECT_FALSE(board.held(GroupId{0}));
  EXPECT_EQ(board.restart(GroupId{0}, {c}), RoundAttempt{1});
  wire::Reduced again = reduced(c, 0, 79);
  again.set_attempt(1);
  EXPECT_TRUE(board.report(again));
  EXPECT_TRUE(board.report(reduced(d, 1, 5)));
  EXPECT_TRUE(board.done());
  EXPECT_EQ(board.results()[0].attempt, RoundAttempt{1});
  EXPECT_EQ(board.results()[0].digest, 79U);
}

TEST(ReduceBoard, AnAttemptIsGivenUpOnlyWhileNobodyHasItsResult) {
  ReduceBoard board;
  const Seat a = seat_of(1, 0), b = seat_of(2, 0);
  board.begin(4, {{GroupId{0}, {a, b}}});
  board.give_up(GroupId{0}, RoundAttempt{1});
  EXPECT_TRUE(board.broken().empty()) << "not that attempt";
  EXPECT_TRUE(board.report(reduced(a, 0, 77)));
  board.give_up(GroupId{0}, RoundAttempt{0});
  EXPECT_TRUE(board.broken().empty()) << "b can fetch it from a";
}

}  // namespace
}  // namespace swarmline
