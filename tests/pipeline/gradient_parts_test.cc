// What a stage steps with, and its phases, part by part.
#include <gtest/gtest.h>

#include "base/hash.h"
#include "kernels/digest.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/gradients/commit_queue.h"
#include "pipeline/stage/gradients/gradient_exchange.h"
#include "pipeline/stage/phases/coordinator_inbox.h"
#include "pipeline/stage/phases/lease_intake.h"
#include "pipeline/stage/phases/phase_runner.h"
#include "sim/cluster/synthetic_source.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/stage_bench.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

Phase step(std::uint64_t number) {
  return {PhaseKind::kTrain, number};
}
RoundKey round_of(std::uint64_t number, std::uint32_t attempt = 0) {
  return {.phase = step(number), .group = GroupId{0}, .attempt = RoundAttempt{attempt}};
}

TEST(GradientState, NothingIsHeldThatWasNeitherSummedNorPlacedAndRetainedIsTheEnd) {
  using enum GradientState;
  EXPECT_FALSE(kGradientStates.allows(kAveraging, kHeld));
  EXPECT_FALSE(kGradientStates.allows(kFetching, kPlacing)) << "it is checked first";
  EXPECT_FALSE(kGradientStates.allows(kChecked, kHeld));
  EXPECT_FALSE(kGradientStates.allows(kRetained, kHeld));
  EXPECT_TRUE(kGradientStates.allows(kHeld, kKept));
  EXPECT_TRUE(kGradientStates.allows(kKept, kRetained));
}

// ---- GradientExchange ---------------------------------------------------------------------------

class GradientTest : public testing::Test {
 protected:
  GradientTest() { bench_.state().begin(0); }
  ~GradientTest() override { gradients_.check_invariants(); }

  // Averages that step alone; what it reports.
  wire::Reduced average_alone(std::uint64_t number, std::uint32_t attempt = 0) {
    SealedGroup group;
    group.attempt = RoundAttempt{attempt};
    group.members = {{bench_.self(), "sim:1"}};
    group.slice_ends = {bench_.context().model.layout().tied_offset};
    gradients_.begin(step(number));
    gradients_.average(step(number), group);
    const auto reports = bench_.told<wire::Reduced>(MessageKind::kReduced);
    EXPECT_EQ(reports.size(), 1U);
    return reports.empty() ? wire::Reduced() : reports.front();
  }
  std::vector<wire::PieceRequest> asked() {
    return bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest);
  }
  wire::Piece piece_of(const wire::PieceRequest& request, BytesView bytes) {
    wire::Piece piece;
    *piece.mutable_blob() = request.blob();
    piece.set_piece(request.piece());
    piece.set_checksum(xxh3(bytes));
    return piece;
  }

  StageBench bench_{1, 0, 0};
  int here_ = 0;
  GradientExchange gradients_{
      bench_.context(),
      bench_.jobs(),
      {.account = [](const Phase&, wire::Reduced&) {}, .on_here = [this] { ++here_; }}};
};

TEST_F(GradientTest, ASumIsHeldThenKeptThenOnlyItsCopyIsLeft) {
  const std::uint64_t digest = average_alone(0).digest();
  EXPECT_TRUE(gradients_.have(round_of(0), digest));
  EXPECT_FALSE(gradients_.bytes(round_of(0)).empty());
  EXPECT_TRUE(gradients_.bytes(round_of(0, 1)).empty());
  gradients_.on_commit(0, false);
  gradients_.retain(0);
  bench_.run();
  gradients_.check_invariants();
  average_alone(1);
  EXPECT_FALSE(gradients_.bytes(round_of(0)).empty()) << "the copy";
  gradients_.check_invariants();
  gradients_.forget_retained(GradientExchange::kRetainedSteps);
  EXPECT_TRUE(gradients_.bytes(round_of(0)).empty());
}

TEST_F(GradientTest, ASealWithIslandsThatCantBeEndsThePeer) {
  const std::uint64_t end = bench_.context().model.layout().tied_offset;
  const std::vector<std::uint32_t> wrong[] = {{0}, {0, 0}, {1, 1}, {0, 7}, {7, 1}, {0, 1, 2}};
  for (const std::vector<std::uint32_t>& speakers : wrong) {
    StageBench bench(1, 0, 0);
    bench.state().begin(0);
    GradientExchange gradients(bench.context(), bench.jobs(),
                               {.account = [](const Phase&, wire::Reduced&) {}, .on_here = [] {}});
    SealedGroup group;
    group.members = {{bench.self(), "sim:1"}, {bench.other(), bench.others_address()}};
    group.slice_ends = {0, end};
    group.speakers = speakers;
    gradients.average(step(0), group);
    ASSERT_TRUE(bench.failed()) << testing::PrintToString(speakers);
    EXPECT_NE(bench.failed()->find("island"), std::string::npos) << *bench.failed();
  }
}

TEST_F(GradientTest, WhatCantBeAveragedIsFetchedAndPlaced) {
  const MarkExpected fetched("gradients.fetched_instead_of_averaged");
  const Buffer sum = Buffer::zeroed(bench_.state().reduced().size());
  gradients_.on_fetch(round_of(0), kernels::digest(sum.bytes()),
                      {{bench_.other(), bench_.other()}});
  const auto requests = asked();
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_TRUE(gradients_.bytes(round_of(0)).empty());
  ASSERT_TRUE(gradients_.on_piece(bench_.other(), piece_of(requests[0], sum.bytes()), sum.bytes())
                  .has_value());
  EXPECT_EQ(bench_.told<wire::Reduced>(MessageKind::kReduced).size(), 1U);
  EXPECT_TRUE(gradients_.have(round_of(0), kernels::digest(sum.bytes())));
  EXPECT_GT(here_, 0);
}

TEST_F(GradientTest, AShadowThatHoldsItIsAskedByNameUntilItIsAMatesToo) {
  const Seat shadow{bench_.other().peer, StageId{7}, bench_.other().incarnation};
  GradientFetch fetch(100, 77);
  fetch.add_holders({{bench_.other(), shadow}});
  EXPECT_EQ(fetch.who_has_it(bench_.other()), shadow);
  fetch.add_mates({{bench_.other().peer, bench_.other()}});
  EXPECT_EQ(fetch.who_has_it(bench_.other()), bench_.other());
  EXPECT_EQ(fetch.who_has_it(bench_.self()), bench_.self());
}

TEST_F(GradientTest, AWholeThatIsSomethingElseIsFetchedAgainFromMates) {
  const MarkExpected again("gradients.wrong_whole_fetched_again"),
      committed("gradients.committed_one_fetched");
  const Buffer sum = Buffer::zeroed(bench_.state().reduced().size());
  gradients_.set_mates({bench_.other()});
  EXPECT_FALSE(gradients_.have(round_of(0), 77));
  const auto requests = asked();
  ASSERT_EQ(requests.size(), 1U);
  ASSERT_TRUE(gradients_.on_piece(bench_.other(), piece_of(requests[0], sum.bytes()), sum.bytes())
                  .has_value());
  EXPECT_EQ(asked().size(), 1U);
}

TEST_F(GradientTest, WhoHadNothingIsAskedAgainAfterAPause) {
  const MarkExpected again("gradients.holders_asked_again");
  gradients_.set_mates({bench_.other()});
  gradients_.expect(round_of(0), 77);
  const auto requests = asked();
  ASSERT_EQ(requests.size(), 1U);
  wire::Piece missing;
  *missing.mutable_blob() = requests[0].blob();
  missing.set_missing(true);
  ASSERT_TRUE(gradients_.on_piece(bench_.other(), missing, {}).has_value());
  bench_.run(knobs().refetch_delay);
  EXPECT_EQ(asked().size(), 1U);
}

// Each try to dial it fails at once: this process has no descriptor left, say.
TEST_F(GradientTest, AMateOutOfReachIsAskedAtAPaceForAsLongAsItTakes) {
  const MarkExpected again("gradients.holders_asked_again"),
      out_of_reach("piece_fetch.holder_out_of_reach");
  gradients_.set_mates({bench_.other()});
  gradients_.expect(round_of(0), 77);
  std::size_t asks = asked().size();
  gradients_.on_link_lost(bench_.other());
  asks += asked().size();
  ASSERT_EQ(asks, 2U) << "a link that ended says little";
  const std::uint32_t pauses = 2 * knobs().fetch_tries_max;
  for (std::uint32_t i = 0; i < pauses; ++i) {
    for (int times = 0; times < 3; ++times) gradients_.on_link_lost(bench_.other());
    EXPECT_TRUE(asked().empty());
    bench_.run(knobs().refetch_delay);
    EXPECT_EQ(asked().size(), 1U);
  }
  EXPECT_FALSE(bench_.failed().has_value());
}

TEST_F(GradientTest, WhatAShadowHeldIsHeldByItsHeirEvenWhereThatHasBegunToFetchIt) {
  const std::uint64_t digest = average_alone(0).digest();
  GradientExchange heir(bench_.context(), bench_.jobs(),
                        {.account = [](const Phase&, wire::Reduced&) {}, .on_here = [] {}});
  heir.set_mates({bench_.other()});
  heir.expect(round_of(0), digest);
  EXPECT_EQ(asked().size(), 1U);
  heir.inherit(gradients_);
  EXPECT_TRUE(heir.have(round_of(0), digest));
  heir.announce_held();
  EXPECT_EQ(bench_.told<wire::Reduced>(MessageKind::kReduced).size(), 1U);
  heir.check_invariants();
  heir.on_commit(0, false);
  EXPECT_FALSE(heir.bytes(round_of(0)).empty());
  heir.check_invariants();
}

TEST_F(GradientTest, ANewerAveragingTakesThePlaceOfAnOlderOne) {
  average_alone(0, 1);
  average_alone(0, 2);
  EXPECT_TRUE(gradients_.bytes(round_of(0, 1)).empty());
  EXPECT_FALSE(gradients_.bytes(round_of(0, 2)).empty());
}

// ---- CommitQueue --------------------------------------------------------------------------------

class CommitTest : public testing::Test {
 protected:
  void make(bool following, bool paused) {
    commits_.emplace(
        bench_.context(), bench_.jobs(), gradients_, following, paused,
        CommitQueue::Hooks{.on_over = [this](const Phase& phase) { over_.push_back(phase.step); },
                           .on_stepped = [this](Version version) { stepped_ = version; },
                           .on_idle = [] {},
                           .on_too_far_behind = [this] { too_far_ = true; }});
  }
  static wire::Commit skipped(std::uint64_t number) {
    wire::Commit commit;
    commit.set_step(number);
    commit.set_skipped(true);
    return commit;
  }

  StageBench bench_{1, 0, 0};
  GradientExchange gradients_{bench_.context(),
                              bench_.jobs(),
                              {.account = [](const Phase&, wire::Reduced&) {}, .on_here = [] {}}};
  std::vector<std::uint64_t> over_;
  Version stepped_;
  bool too_far_ = false;
  std::optional<CommitQueue> commits_;
};

TEST_F(CommitTest, ASeatedPeerAppliesTheNextOneOnly) {
  make(false, false);
  EXPECT_FALSE(commits_->on_commit(skipped(1)).has_value());
  ASSERT_TRUE(commits_->on_commit(skipped(0)).has_value());
  EXPECT_EQ(over_, std::vector<std::uint64_t>{0});
  EXPECT_EQ(commits_->committed(), Version{1});
  EXPECT_EQ(bench_.told<wire::Stepped>(MessageKind::kStepped).size(), 1U);
  EXPECT_EQ(commits_->reached().version, Version{1});
  EXPECT_EQ(stepped_, Version{1});
  wire::Commit again = skipped(0);
  again.set_again(true);
  EXPECT_TRUE(commits_->on_commit(again).has_value()) << "another coordinator tells it once more";
  EXPECT_EQ(commits_->committed(), Version{1});
  const MarkExpected heard_again("commits.heard_again");
  again.set_step(1);
  EXPECT_TRUE(commits_->on_commit(again).has_value()) << "this one it had not heard of";
  EXPECT_EQ(commits_->committed(), Version{2});
  commits_->check_invariants();
}

TEST_F(CommitTest, AJoinerKeepsThemUntilItsStateIsHere) {
  make(true, true);
  for (std::uint64_t i = 5; i < 8; ++i) ASSERT_TRUE(commits_->follow(skipped(i)).has_value());
  EXPECT_FALSE(commits_->follow(skipped(9)).has_value());
  EXPECT_TRUE(over_.empty());
  commits_->drop_below(Version{6});
  commits_->begin_at(Version{6});
  commits_->advance();
  EXPECT_EQ(over_, (std::vector<std::uint64_t>{6, 7}));
  const auto ready = bench_.told<wire::Ready>(MessageKind::kReady);
  ASSERT_EQ(ready.size(), 1U) << "of the newest only";
  EXPECT_EQ(ready[0].version(), 8U);
  EXPECT_TRUE(commits_->take_seat());
}

TEST_F(CommitTest, WhoIsTooFarBehindNeedsANewerState) {
  const MarkExpected far("commits.too_far_behind");
  make(true, true);
  for (std::uint64_t i = 0; i <= CommitQueue::kFollowedMax; ++i)
    ASSERT_TRUE(commits_->follow(skipped(i)).has_value());
  EXPECT_TRUE(too_far_);
  EXPECT_TRUE(commits_->empty());
}

// ---- Phases -------------------------------------------------------------------------------------

class PhaseRunnerTest : public testing::Test {
 protected:
  ~PhaseRunnerTest() override { runner_.check_invariants(); }

  wire::OpenPhase open(std::uint64_t number) {
    wire::OpenPhase open;
    *open.mutable_phase() = to_wire(step(number));
    open.set_microbatches(bench_.config().microbatches_per_step());
    open.set_opening(1);
    return open;
  }
  wire::Seal seal(std::uint64_t number, std::uint32_t owned) {
    wire::Seal seal;
    *seal.mutable_phase() = to_wire(step(number));
    if (owned > 0) seal.add_owned()->set_count(owned);
    wire::ReduceGroup* group = seal.add_groups();
    *group->add_members()->mutable_seat() = to_wire(bench_.self());
    group->add_slice_ends(bench_.context().model.layout().tied_offset);
    return seal;
  }

  StageBench bench_{1, 0, 0};
  PhaseBook phases_;
  DataFetch data_{bench_.context(), nullptr, nullptr, [] {}};
  LeaseIntake leases_{bench_.context(), nullptr, data_};
  Contributions contributions_{bench_.context(),
                               Contributions::subtract_on_device(bench_.context())};
  MicrobatchFlow flow_{bench_.context(), phases_,
                       contributions_,   make_wiring(bench_.config(), bench_.self()),
                       1 << 20,          [] {}};
  GradientExchange gradients_{bench_.context(),
                              bench_.jobs(),
                              {.account = [](const Phase&, wire::Reduced&) {}, .on_here = [] {}}};
  int settled_ = 0;
  SumHandOver hand_over_{bench_.context(), bench_.jobs(), phases_, contributions_};
  PhaseRunner runner_{bench_.context(), bench_.jobs(), phases_,    contributions_,        flow_,
                      gradients_,       leases_,       hand_over_, [this] { ++settled_; }};
};

TEST_F(PhaseRunnerTest, APhaseIsActiveOnceTheDeviceIsReady) {
  ASSERT_TRUE(runner_.on_open(open(0), Version{0}).has_value());
  EXPECT_EQ(phases_.status(step(0)), PhaseStatus::kFuture);
  bench_.run();
  EXPECT_EQ(phases_.status(step(0)), PhaseStatus::kActive);
  EXPECT_FALSE(runner_.on_open(open(0), Version{0}).has_value()) << "it is open";
  EXPECT_EQ(runner_.on_open(open(1), Version{1}).error().code, ErrorCode::kIncompatible)
      << "on a version that is not here";
}

TEST_F(PhaseRunnerTest, ASealThatFitsTheSumsIsAveraged) {
  ASSERT_TRUE(runner_.on_open(open(0), Version{0}).has_value());
  bench_.run();
  ASSERT_TRUE(runner_.on_seal(seal(0, 0), Version{0}).has_value());
  EXPECT_TRUE(runner_.settling());
  EXPECT_EQ(bench_.told<wire::Reduced>(MessageKind::kReduced).size(), 1U);
  EXPECT_FALSE(runner_.settling());
  EXPECT_EQ(settled_, 1);
}

TEST_F(PhaseRunnerTest, ASealThatNamesWhatIsNotInTheSumsIsToldSo) {
  const MarkExpected mismatched("phases.seal_mismatched");
  ASSERT_TRUE(runner_.on_open(open(0), Version{0}).has_value());
  bench_.run();
  ASSERT_TRUE(runner_.on_seal(seal(0, 2), Version{0}).has_value());
  const auto told = bench_.told<wire::SealMismatch>(MessageKind::kSealMismatch);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].missing_size(), 2);
  EXPECT_EQ(settled_, 1);
}

TEST_F(PhaseRunnerTest, ASealOfACoordinatorThatIsGoneIsVoid) {
  const MarkExpected voided("phases.seal_voided_by_another_coordinator");
  ASSERT_TRUE(runner_.on_open(open(0), Version{0}).has_value());
  bench_.run();
  ASSERT_TRUE(runner_.on_seal(seal(0, 2), Version{0}).has_value());
  runner_.on_coordinator_lost();
  EXPECT_TRUE(bench_.told<wire::SealMismatch>(MessageKind::kSealMismatch).empty());
  EXPECT_EQ(settled_, 0);
  const MarkExpected again("phases.opened_again_by_another_coordinator");
  runner_.on_resume(Version{0});
  ASSERT_TRUE(runner_.on_open(open(0), Version{0}).has_value());
  bench_.run();
  EXPECT_EQ(phases_.status(step(0)), PhaseStatus::kActive);
}

TEST(LeaseIntake, AsksForOneMoreForEachThatEndedAndTakesNoMoreThanThat) {
  StageBench bench(2, 0, 1);
  DataFetch data(bench.context(), nullptr, nullptr, [] {});
  LeaseIntake leases(bench.context(), std::make_unique<SyntheticSource>(1, 31, 4), data);
  leases.want();
  leases.want();
  const auto told = bench.told<wire::WantLeases>(MessageKind::kWantLeases);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(leases.take(told[0].total()).has_value());
  EXPECT_FALSE(leases.take(1).has_value());
  leases.on_finished();
  leases.want();
  EXPECT_TRUE(leases.take(1).has_value());
  leases.check_invariants();
  LeaseIntake none(bench.context(), nullptr, data);
  none.want();
  EXPECT_TRUE(bench.told<wire::WantLeases>(MessageKind::kWantLeases).size() == 1U)
      << "that of the first";
  EXPECT_FALSE(none.take(0).has_value());
}

// One whose jobs take nearly five times as long as usual keeps four of a window of sixteen, and
// asks for the rest when that is over.
TEST(LeaseIntake, WhoIsSlowAsksForFewer) {
  RunConfig config = small_run(2, 2);
  config.pipeline.in_flight = 16;
  StageBench bench(config, 0, 1, {.forward = 20ms});
  DataFetch data(bench.context(), nullptr, nullptr, [] {});
  LeaseIntake leases(bench.context(), std::make_unique<SyntheticSource>(1, 31, 4), data);
  const auto compute = [&](int jobs) {
    for (int i = 0; i < jobs; ++i) {
      StageJob job{.job_class = JobClass::kForward, .phase = step(0), .job = {}, .done = {}};
      job.job.kind = JobKind::kForward;
      job.job.body = [] { return Result<void>(); };
      job.done = [](const JobReport&) {};
      bench.context().queue.submit(std::move(job));
    }
    bench.run(1s);
  };
  const auto asked = [&] {
    leases.want();
    const auto told = bench.told<wire::WantLeases>(MessageKind::kWantLeases);
    return told.empty() ? 0 : told.back().total();
  };
  compute(32);
  EXPECT_EQ(asked(), 16U);
  bench.device().slow_down(5);
  compute(2);
  for (int i = 0; i < 12; ++i) leases.on_finished();
  EXPECT_EQ(asked(), 16U) << "no more than before: it has four";
  leases.on_finished();
  EXPECT_EQ(asked(), 17U);
  bench.device().slow_down(1);
  compute(2);
  EXPECT_EQ(asked(), 29U);
  leases.check_invariants();
}

TEST(CoordinatorInbox, KeepsTheOrderAndItsBound) {
  CoordinatorInbox inbox;
  for (std::size_t i = 0; i < CoordinatorInbox::kWaitingMax; ++i) {
    Frame frame;
    frame.kind = static_cast<std::uint16_t>(i);
    ASSERT_TRUE(inbox.push(std::move(frame)));
  }
  EXPECT_FALSE(inbox.push(Frame()));
  EXPECT_EQ(inbox.pop()->kind, 0);
  EXPECT_EQ(inbox.pop()->kind, 1);
  inbox.clear();
  EXPECT_TRUE(inbox.empty());
}

}  // namespace
}  // namespace swarmline
