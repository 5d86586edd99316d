// The parts that a microbatch goes through, each alone: the way in, the way on, the way back.
#include <set>

#include <gtest/gtest.h>

#include "compression/codec.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/microbatches/admission.h"
#include "pipeline/stage/microbatches/boundary_traffic.h"
#include "pipeline/stage/microbatches/forwarder.h"
#include "pipeline/stage/microbatches/next_stage.h"
#include "pipeline/stage/microbatches/returner.h"
#include "pipeline/stage/microbatches/stage_compute.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/stage_bench.h"

namespace swarmline {
namespace {

const Phase kStep{PhaseKind::kTrain, 0};

AttemptId attempt(std::uint32_t index, std::uint64_t of = 0) {
  return {{kStep, index}, Attempt{of}};
}

SharedBytes activation(const StageBench& bench, const StageContext& context) {
  const std::uint64_t elements = context.activation_elements(bench.config().batch.microbatch);
  const DType dtype = bench.spec().shape.dtype;
  const Buffer values = Buffer::zeroed(elements * size_bytes(dtype));
  return SharedBytes(encode(CodecSpec{}, values.bytes(), dtype, nullptr));
}

// ---- Admission ----------------------------------------------------------------------------------

class AdmissionTest : public testing::Test {
 protected:
  explicit AdmissionTest(std::uint64_t admit_bytes_max = 1, const SimDeviceOptions& device = {})
      : admit_bytes_max_(admit_bytes_max), bench_(2, 1, 0, device) {
    phases_.announce(kStep, Version{0}, 64, PhaseEpoch{1});
    bench_.state().begin(0);
  }
  Result<void> forward(std::uint32_t index, std::uint64_t epoch = 1, Duration over = {}) {
    wire::Forward message;
    *message.mutable_id() = to_wire(attempt(index));
    message.set_rows(bench_.config().batch.microbatch);
    message.set_opening(epoch);
    message.set_targets(std::string(bench_.config().batch.microbatch * bench_.spec().sequence *
                                        target_bytes(bench_.spec().shape.vocab),
                                    '\0'));
    Frame frame =
        make_frame(MessageKind::kForward, message, {activation(bench_, bench_.context())});
    frame.received_over = over;
    return admission_.on_forward(bench_.other(), message, frame, {});
  }

  void end(const TaskPtr& task) {
    task->state = TaskState::kOver;
    admission_.leave(task);
  }
  // When all that is on its way through the device has come out of it.
  void end_all() {
    bench_.run(std::chrono::seconds(1));
    for (const TaskPtr& task : admission_.tasks()) end(task);
    bench_.run(std::chrono::seconds(1));
  }

  const std::uint64_t admit_bytes_max_;
  StageBench bench_;
  PhaseBook phases_;
  CodecMonitor monitor_{bench_.context()};
  BoundaryTraffic traffic_{bench_.context(), phases_};
  std::vector<std::uint32_t> turns_;
  Admission admission_{
      bench_.context(),
      phases_,
      monitor_,
      traffic_,
      admit_bytes_max_,
      {.on_output = [](const TaskPtr&) { ADD_FAILURE() << "no stage follows"; },
       .on_turn = [this](const TaskPtr& task) { turns_.push_back(task->id.microbatch.index); },
       .on_end = [this](const TaskPtr& task) { end(task); },
       .on_failed = [](const TaskPtr&, const Error& error) { ADD_FAILURE() << error.what; }}};
};

class RoomyAdmissionTest : public AdmissionTest {
 protected:
  RoomyAdmissionTest()
      : AdmissionTest(std::uint64_t{1} << 30, {.forward = std::chrono::milliseconds(20)}) {}
};

TEST_F(AdmissionTest, WhatComesBeforeItsPhaseIsHeldUntilThatIsActive) {
  ASSERT_TRUE(forward(3).has_value());
  bench_.run();
  EXPECT_TRUE(turns_.empty());
  admission_.check_invariants();
  phases_.activate(kStep);
  admission_.on_active(kStep);
  bench_.run();
  EXPECT_EQ(turns_, std::vector<std::uint32_t>{3});
  EXPECT_EQ(bench_.sent<wire::ForwardDone>(MessageKind::kForwardDone).size(), 1U);
}

TEST_F(AdmissionTest, AFullPeerRefusesAndSaysWhenThereIsRoom) {
  const MarkExpected full("admission.full_refused");
  ASSERT_TRUE(forward(1).has_value()) << "an empty one takes anything";
  ASSERT_TRUE(forward(2).has_value());
  const auto refused = bench_.sent<wire::Refused>(MessageKind::kRefused);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].why(), wire::Refused::FULL);
  EXPECT_EQ(admission_.in_flight(), 1U);
  end(admission_.find(attempt(1)));
  EXPECT_EQ(bench_.sent<wire::Credit>(MessageKind::kCredit).size(), 1U);
  EXPECT_EQ(admission_.admitted_bytes(), 0U);
  admission_.check_invariants();
}

TEST_F(AdmissionTest, AForwardOfASealedEpochIsRefused) {
  const MarkExpected stale("admission.stale_forward_refused");
  phases_.seal(kStep);
  ASSERT_TRUE(forward(1).has_value());
  const auto refused = bench_.sent<wire::Refused>(MessageKind::kRefused);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].why(), wire::Refused::RETIRED);
  ASSERT_TRUE(forward(1, 2).has_value()) << "the next epoch's is held";
  EXPECT_EQ(admission_.in_flight(), 1U);
}

TEST_F(AdmissionTest, ASecondRunsNameIsNobodysForward) {
  wire::Forward message;
  *message.mutable_id() = to_wire(AttemptId{{kStep, 1}, second_run(Attempt{7})});
  message.set_opening(1);
  EXPECT_FALSE(admission_.on_forward(bench_.other(), message, Frame(), {}).has_value());
}

// Its jobs take four times as long: of six that it has it keeps those that it has begun, and takes
// another when it has fewer again.
TEST_F(RoomyAdmissionTest, APeerThatHasBecomeSlowHandsBackWhatItDidNotBegin) {
  phases_.activate(kStep);
  std::uint32_t next = 0;
  for (; next < 32; ++next) {
    ASSERT_TRUE(forward(next).has_value());
    end_all();
  }
  bench_.sent<wire::Refused>(MessageKind::kRefused);
  bench_.device().slow_down(4);
  const MarkExpected handed_back("admission.handed_back");
  for (std::uint32_t i = 0; i < 6; ++i) ASSERT_TRUE(forward(next++).has_value());
  bench_.run(std::chrono::milliseconds(200));
  const auto refused = bench_.sent<wire::Refused>(MessageKind::kRefused);
  ASSERT_GT(refused.size(), 0U);
  for (const wire::Refused& one : refused) EXPECT_EQ(one.why(), wire::Refused::FULL);
  EXPECT_EQ(from_wire(refused[0].id()).microbatch.index, next - 1) << "what came last first";
  EXPECT_EQ(admission_.in_flight(), 6 - refused.size());
  EXPECT_GE(admission_.in_flight(), Slowdown::kFewest);
  ASSERT_TRUE(forward(next++).has_value());
  EXPECT_EQ(bench_.sent<wire::Refused>(MessageKind::kRefused).size(), 1U);
  admission_.check_invariants();
  end_all();
  EXPECT_EQ(bench_.sent<wire::Credit>(MessageKind::kCredit).size(), 1U);
  EXPECT_EQ(admission_.in_flight(), 0U);
}

// ---- Forwarder ----------------------------------------------------------------------------------

class ForwarderTest : public testing::Test {
 protected:
  ForwarderTest() {
    phases_.announce(kStep, Version{0}, 8, PhaseEpoch{1});
    phases_.activate(kStep);
    forwarder_.set_candidates({{.seat = bench_.other(), .prior = {}}});
  }
  TaskPtr computed(std::uint32_t index) {
    auto task = std::make_shared<MicrobatchTask>(attempt(index));
    task->rows = bench_.config().batch.microbatch;
    task->output = activation(bench_, bench_.context());
    return task;
  }
  std::vector<wire::Forward> forwards() {
    return bench_.sent<wire::Forward>(MessageKind::kForward);
  }

  StageBench bench_{2, 0, 1};
  PhaseBook phases_;
  BoundaryTraffic traffic_{bench_.context(), phases_};
  std::vector<std::string> failures_;
  Forwarder forwarder_{
      bench_.context(),
      phases_,
      traffic_,
      make_wiring(bench_.config(), bench_.self()),
      {.on_end = [](const TaskPtr&) {},
       .on_failed = [this](const TaskPtr&,
                           const Error& error) { failures_.push_back(error.what); }}};
};

TEST_F(ForwarderTest, ALostPeersWorkGoesOnUnderAnotherNameAsSoonAsThereIsSomebody) {
  const MarkExpected again("forwarder.lost_peers_work_sent_again");
  const TaskPtr task = computed(1);
  forwarder_.send_on(task);
  ASSERT_EQ(forwards().size(), 1U);
  forwarder_.check_invariants();
  forwarder_.on_peer_lost(bench_.other(), {task});
  EXPECT_EQ(task->state, TaskState::kSeeking);
  EXPECT_TRUE(forwards().empty());
  forwarder_.set_candidates({{.seat = bench_.other(), .prior = {}}});
  forwarder_.retry_seeking();
  const auto sent = forwards();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(Attempt{sent[0].id().attempt()}, resend_attempt(bench_.self().peer, 1));
  EXPECT_EQ(task->sends, 1U) << "no fault of the microbatch";
  forwarder_.check_invariants();
}

TEST_F(ForwarderTest, TheAnswerOfATryThatWasGivenUpCountsToo) {
  const MarkExpected late("forwarder.answer_of_a_given_up_try");
  const TaskPtr task = computed(1);
  forwarder_.send_on(task);
  forwarder_.resend(task, Forwarder::Why::kBroken);
  const auto gradient_of = [](const AttemptId& id) {
    wire::Gradient gradient;
    *gradient.mutable_id() = to_wire(id);
    return gradient;
  };
  EXPECT_EQ(forwarder_.on_gradient(bench_.other(), gradient_of(attempt(1))), task);
  EXPECT_EQ(forwarder_.on_gradient(bench_.other(), gradient_of(attempt(5))), nullptr);
  forwarder_.check_invariants();
}

TEST_F(ForwarderTest, AStalledHopIsReportedAndCancelled) {
  const MarkExpected stalled("forwarder.stalled_hop_sent_again");
  const TaskPtr task = computed(1);
  forwarder_.send_on(task);
  forwarder_.on_stall(bench_.other(), attempt(1));
  EXPECT_EQ(bench_.told<wire::StallReport>(MessageKind::kStallReport).size(), 1U);
  EXPECT_EQ(bench_.sent<wire::Cancel>(MessageKind::kCancel).size(), 1U);
}

TEST_F(ForwarderTest, AMicrobatchThatNobodyTakesFailsOnlyWithACoordinator) {
  const TaskPtr task = computed(1);
  forwarder_.send_on(task);
  forwarder_.set_led(false, {task});
  const MarkExpected unled("forwarder.tries_on_without_coordinator");
  const MarkExpected led("forwarder.out_of_tries");
  for (int i = 0; i < 80 && failures_.empty(); ++i) {
    wire::Refused refused;
    *refused.mutable_id() = to_wire(task->outgoing);
    refused.set_why(wire::Refused::BROKEN);
    forwarder_.on_refused(bench_.other(), refused);
    bench_.run(std::chrono::seconds(60));
    if (i == 20) {
      EXPECT_TRUE(failures_.empty());
      forwarder_.set_led(true, {task});
    }
  }
  EXPECT_EQ(failures_.size(), 1U);
}

// What came no slower than it was computed is hidden by that: nothing is said of it.
TEST_F(AdmissionTest, ASlowArrivalIsToldToWhoSentIt) {
  phases_.activate(kStep);
  std::uint32_t index = 0;
  for (const Duration over : {Duration{}, Duration(std::chrono::minutes(1))}) {
    ASSERT_TRUE(forward(index, 1, over).has_value());
    const auto done = bench_.sent<wire::ForwardDone>(MessageKind::kForwardDone);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].arrived_ns(), static_cast<std::uint64_t>(over.count()));
    const TaskPtr task = admission_.find(attempt(index++));
    task->state = TaskState::kOver;
    admission_.leave(task);
  }
}

TEST(ForwarderLinks, WhatTheyTakeIsTheWirings) {
  StageBench bench(2, 0, 1);
  PhaseBook phases;
  phases.announce(kStep, Version{0}, 8, PhaseEpoch{1});
  BoundaryTraffic traffic(bench.context(), phases);
  auto wiring = make_wiring(bench.config(), bench.self());
  const Wiring& rule = *wiring;
  Forwarder forwarder(bench.context(), phases, traffic, std::move(wiring), {});
  forwarder.set_candidates({{.seat = bench.other(), .prior = {}}});
  const auto link = [&] { return to_seconds(rule.shares().at(0).expected_link); };
  EXPECT_EQ(link(), 0);
  wire::ForwardDone done;
  *done.mutable_id() = to_wire(attempt(1));
  done.set_service_ns(1'000'000);
  ASSERT_TRUE(forwarder.on_forward_done(bench.other(), done).has_value());
  EXPECT_LT(link(), 1e-5) << "it came at once";
  done.set_arrived_ns(90'000'000);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(forwarder.on_forward_done(bench.other(), done));
  EXPECT_NEAR(link(), 0.09, 1e-4);
  for (int i = 0; i < 100; ++i)
    forwarder.on_returned(bench.other(), std::chrono::milliseconds(200));
  EXPECT_NEAR(link(), 0.2, 1e-4);
  done.set_arrived_ns(~std::uint64_t{0});  // whatever that is
  ASSERT_TRUE(forwarder.on_forward_done(bench.other(), done).has_value());
}

// ---- Who is left out ----------------------------------------------------------------------------

class LeftOut : public testing::Test {
 protected:
  LeftOut() { next_.set({{.seat = a_, .prior = {}}, {.seat = b_, .prior = {}}}); }
  std::set<PeerId> picked(const std::vector<PeerId>& exclude = {}) {
    std::set<PeerId> all;
    for (std::uint32_t i = 0; i < 20; ++i)
      if (const auto seat = next_.pick({kStep, i}, exclude, i % 2 == 1)) {
        all.insert(seat->peer);
        next_.wiring().on_settled(seat->peer);
      }
    return all;
  }

  const Seat a_{PeerId{1}, StageId{1}, Incarnation{1}}, b_{PeerId{2}, StageId{1}, Incarnation{1}};
  NextStage next_{make_wiring(small_run(2, 2), {PeerId{9}, StageId{0}, Incarnation{1}})};
};

TEST_F(LeftOut, GetsNothingUntilItsPauseIsOverAndItsLinkIsThere) {
  EXPECT_EQ(picked().size(), 2U);
  EXPECT_EQ(next_.pause_for(b_), knobs().left_out_min);
  EXPECT_EQ(next_.pause_for(b_), std::nullopt) << "it runs";
  EXPECT_EQ(picked(), std::set<PeerId>{a_.peer});
  EXPECT_EQ(next_.size(), 1U);
  EXPECT_TRUE(next_.all_in({a_.peer})) << "nobody else may be picked";
  EXPECT_TRUE(picked({a_.peer}).empty());
  EXPECT_FALSE(next_.undialled(b_)) << "the link that broke says nothing of the pause";
  EXPECT_TRUE(next_.pause_over(b_));
  EXPECT_EQ(picked(), std::set<PeerId>{a_.peer}) << "it is only tried for";
  EXPECT_TRUE(next_.back(b_));
  EXPECT_EQ(picked().size(), 2U);
  EXPECT_FALSE(next_.pause_over(b_));
  EXPECT_FALSE(next_.back(b_));
}

TEST_F(LeftOut, PausesDoubleUpToTheirMost) {
  for (Duration pause = knobs().left_out_min; pause < 8 * knobs().left_out_max; pause *= 2) {
    EXPECT_EQ(next_.pause_for(b_), std::min<Duration>(pause, knobs().left_out_max));
    EXPECT_TRUE(next_.pause_over(b_));
  }
  next_.back(b_);
  EXPECT_EQ(next_.pause_for(b_), knobs().left_out_min) << "it was there meanwhile";
}

TEST_F(LeftOut, WhereAllAreAnyMayBePicked) {
  EXPECT_TRUE(next_.leave_out(a_));
  EXPECT_FALSE(next_.leave_out(a_));
  EXPECT_TRUE(next_.is_out(a_.peer));
  EXPECT_TRUE(next_.leave_out(b_));
  EXPECT_FALSE(next_.is_out(a_.peer));
  EXPECT_EQ(picked().size(), 2U);
  EXPECT_EQ(next_.size(), 2U);
  EXPECT_FALSE(next_.all_in({a_.peer}));
  EXPECT_TRUE(next_.undialled(b_));
  EXPECT_EQ(picked(), std::set<PeerId>{b_.peer});
}

TEST_F(LeftOut, ALaterSeatIsAnother) {
  const Seat later{b_.peer, b_.stage, Incarnation{2}};
  EXPECT_FALSE(next_.leave_out(later)) << "no candidate yet";
  next_.pause_for(b_);
  next_.set({{.seat = a_, .prior = {}}, {.seat = later, .prior = {}}});
  EXPECT_FALSE(next_.is_out(b_.peer));
  EXPECT_FALSE(next_.pause_over(b_));
  next_.leave_out(later);
  EXPECT_TRUE(next_.remove(later));
  EXPECT_EQ(next_.size(), 1U);
}

// ---- Returner -----------------------------------------------------------------------------------

class ReturnerTest : public testing::Test {
 protected:
  ReturnerTest() {
    phases_.announce(kStep, Version{0}, 8, PhaseEpoch{1});
    phases_.activate(kStep);
    contributions_.open(kStep);
  }
  TaskPtr second_try(std::uint32_t index) {
    auto task = std::make_shared<MicrobatchTask>(
        attempt(index, resend_attempt(bench_.other().peer, 1).value));
    task->upstream = bench_.other();
    task->rows = bench_.config().batch.microbatch;
    return task;
  }
  std::function<void(Result<Frame>)> asked() {
    EXPECT_EQ(bench_.told<wire::Claim>(MessageKind::kClaim).size(), 1U);
    auto replies = bench_.take_replies();
    return replies.size() == 1 ? replies.front() : [](const Result<Frame>&) {};
  }
  static Frame answer(bool granted) {
    wire::ClaimReply reply;
    reply.set_granted(granted);
    return make_frame(MessageKind::kClaimReply, reply);
  }

  StageBench bench_{2, 1, 0};
  PhaseBook phases_;
  CodecMonitor monitor_{bench_.context()};
  BoundaryTraffic traffic_{bench_.context(), phases_};
  Contributions contributions_{bench_.context(),
                               [](const TaskPtr&, const std::function<void()>&) {}};
  int ended_ = 0;
  Returner returner_{bench_.context(),
                     phases_,
                     monitor_,
                     traffic_,
                     contributions_,
                     {.on_end = [this](const TaskPtr&) { ++ended_; },
                      .on_failed = [](const TaskPtr&, const Error&) {},
                      .on_damaged = [](const TaskPtr&) {}}};
};

TEST_F(ReturnerTest, AClaimIsAskedUntilItsAnswerIsKnown) {
  const MarkExpected again("returner.claim_asked_again");
  returner_.on_turn(second_try(1));
  asked()(fail(ErrorCode::kDeadline, "no answer"));
  const auto reply = asked();
  EXPECT_FALSE(contributions_.reserve(attempt(1))) << "it may be granted";
  const MarkExpected refused("returner.claim_refused");
  reply(answer(false));
  EXPECT_TRUE(contributions_.reserve(attempt(1))) << "another try may";
}

TEST_F(ReturnerTest, AClaimThatIsGrantedTooLateIsReleased) {
  const MarkExpected late("returner.claim_answered_too_late");
  const TaskPtr task = second_try(1);
  returner_.on_turn(task);
  const auto reply = asked();
  task->state = TaskState::kOver;
  reply(answer(true));
  EXPECT_EQ(bench_.told<wire::ReleaseClaim>(MessageKind::kReleaseClaim).size(), 1U);
}

TEST_F(ReturnerTest, WhatNobodyWantsAGradientOfEndsWithAWord) {
  const TaskPtr task = second_try(1);
  task->mask = std::string("\x04", 1);  // only a stage beyond
  returner_.on_turn(task);
  EXPECT_EQ(ended_, 1);
  const auto sent = bench_.sent<wire::Gradient>(MessageKind::kGradient);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].nothing_below());
}

// ---- BoundaryTraffic ----------------------------------------------------------------------------

TEST(BoundaryTraffic, AStepsBytesAreItsOwnAndEvaluationsAreNobodys) {
  StageBench bench(2, 0, 1);
  PhaseBook phases;
  BoundaryTraffic traffic(bench.context(), phases);
  const Phase eval{PhaseKind::kEval, 0};
  phases.announce(kStep, Version{0}, 8, PhaseEpoch{1});
  phases.announce(eval, Version{0}, 8, PhaseEpoch{1});
  const SharedBytes tensor(Buffer(100));
  traffic.send_next(bench.other(), kStep,
                    make_frame(MessageKind::kForward, wire::Forward(), {tensor}));
  traffic.send_next(bench.other(), eval,
                    make_frame(MessageKind::kForward, wire::Forward(), {tensor}));
  traffic.send_back(bench.other(), kStep, make_frame(MessageKind::kRefused, wire::Refused()));
  traffic.check_invariants();
  wire::BoundaryBytes bytes;
  traffic.take(kStep, bytes);
  EXPECT_EQ(bytes.forward_codec(), 100U);
  EXPECT_EQ(bytes.forward_messages(), 1U);
  EXPECT_EQ(bytes.backward_codec(), 0U);
  EXPECT_GT(bytes.backward_framing(), 0U);
  wire::BoundaryBytes again;
  traffic.take(kStep, again);
  traffic.take(eval, again);
  EXPECT_EQ(again.ByteSizeLong(), 0U);
}

}  // namespace
}  // namespace swarmline
