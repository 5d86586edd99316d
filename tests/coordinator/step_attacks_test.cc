// What one that has a seat says of steps to stop the run, or to decide it for others.
#include <limits>

#include <gtest/gtest.h>

#include "pipeline/coordinator/steps/report_intake.h"
#include "pipeline/protocol/knobs.h"
#include "tests/coordinator/parts_bench.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

const Phase kStep0{PhaseKind::kTrain, 0};

class SeatedAttack : public ::testing::Test {
 protected:
  void fail(const Seat& seat, std::uint32_t index) {
    wire::ComputeFailed failed;
    *failed.mutable_seat() = to_wire(seat);
    *failed.mutable_id() = to_wire(AttemptId{{kStep0, index}, Attempt{}});
    failed.set_what("\x1b[2Jnan");
    intake.on_compute_failed(failed);
  }
  void compute(const Seat& seat, std::uint32_t index) {
    wire::Report report;
    *report.mutable_seat() = to_wire(seat);
    *report.mutable_phase() = to_wire(kStep0);
    report.add_contributions()->set_index(index);
    intake.on_report(report);
  }
  void open() {
    bench.open_step(0);
    bench.leases.want(source, 4, 0);
    bench.leases.pump();
  }

  PartsBench bench;
  const Seat source = bench.seated(0), honest = bench.seated(1);
  ReportIntake intake{bench.shape,   bench.ledger, bench.leases,
                      bench.members, bench.outbox, bench.rulings};
};

// Three seats are as cheap as one.
TEST_F(SeatedAttack, ThreeSeatsDoNotStopARunOfMany) {
  std::vector<Seat> stage{honest};
  while (stage.size() < 8) stage.push_back(bench.seated(1));
  open();
  for (std::size_t i = 0; i < 3; ++i) fail(stage[i], 0);
  EXPECT_FALSE(bench.rulings.take_failure().has_value()) << "five have not tried it";
  fail(stage[3], 0);
  const auto sentence = bench.rulings.take_failure();
  ASSERT_TRUE(sentence.has_value()) << "half of the stage";
  EXPECT_EQ(sentence->find('\x1b'), std::string::npos) << *sentence;
}

TEST_F(SeatedAttack, WhoFailsAtWhatOthersComputeIsLetGo) {
  const Seat liar = bench.seated(1);
  open();
  for (std::uint32_t index = 0; index < 2; ++index) {
    fail(liar, index);
    compute(honest, index);
  }
  EXPECT_FALSE(bench.rulings.any());
  const MarkExpected mark("report_intake.fails_at_what_others_compute");
  fail(liar, 2);
  compute(honest, 2);
  const auto losses = bench.rulings.take_losses();
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].seat, liar);
  EXPECT_FALSE(bench.rulings.take_failure().has_value());
}

TEST_F(SeatedAttack, AFloodOfStallsIsOneEvidence) {
  open();
  wire::StallReport stall;
  *stall.mutable_seat() = to_wire(honest);
  *stall.mutable_stalled() = to_wire(source);
  const MarkExpected mark("report_intake.too_many_stalls");
  for (int i = 0; i < 100'000; ++i) intake.on_stall(stall, bench.alarms.now());
  EXPECT_LE(bench.count(source, MessageKind::kStallReport), ReportIntake::kStallsMax);
}

class RoundAttack : public SeatedAttack {
 protected:
  RoundAttack() {
    bench.open_step(0);
    bench.complete_step(0);
    bench.round.begin(0, Term{1});
  }
  void break_round(const Seat& seat, const Seat& beyond) {
    wire::RoundBroken broken;
    *broken.mutable_seat() = to_wire(seat);
    *broken.mutable_beyond() = to_wire(beyond);
    broken.mutable_phase()->set_step(0);
    broken.set_group(1);
    broken.set_attempt(bench.round.board().attempt(GroupId{1}).value);
    broken.set_nobody_there(true);
    bench.round.on_round_broken(broken);
    bench.clock.run_for(knobs().round_retry_delay + 1ms);
    bench.round.mend();
  }
  const Seat mate = bench.seated(1), third = bench.seated(1);
};

TEST_F(RoundAttack, OnlyMembersSayThatARoundIsBroken) {
  const auto attempt = bench.round.board().attempt(GroupId{1});
  const Seat outsider = bench.seated(0);
  const MarkExpected mark("commit_round.broken_elsewhere");
  for (int i = 0; i < 100; ++i) {
    break_round(outsider, honest);
    break_round(honest, outsider);
    break_round(honest, honest);
  }
  EXPECT_EQ(bench.round.board().attempt(GroupId{1}), attempt);
  EXPECT_TRUE(bench.rulings.take_losses().empty());
}

TEST_F(RoundAttack, ALyingNormDoesNotDecide) {
  bench.round.on_reduced(bench.reduced(source, 1, 4));
  bench.round.on_reduced(
      bench.reduced(honest, 2, std::numeric_limits<double>::quiet_NaN()));  // first of its stage
  bench.round.on_reduced(bench.reduced(mate, 2, 5));
  const MarkExpected mark("reduce_board.norms_differ");
  bench.round.on_reduced(bench.reduced(third, 2, 5));
  ASSERT_TRUE(bench.round.mend());
  EXPECT_EQ(bench.round.board().sum_of_squares(), 9);
}

}  // namespace
}  // namespace swarmline
