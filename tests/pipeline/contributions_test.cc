// What is in the sums and what the ledger says of it: reports, acknowledgements, taking back,
// settling.
#include "pipeline/stage/microbatches/contributions.h"

#include <gtest/gtest.h>

#include "sim/cluster/fake_stage_model.h"
#include "sim/doors/sim_device.h"
#include "sim/doors/sim_network.h"
#include "sim/doors/sim_runtime.h"
#include "tests/pipeline/swarm_config.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

const Phase kPhase{PhaseKind::kTrain, 0};

class ContributionsTest : public testing::Test {
 protected:
  ~ContributionsTest() override { contributions_.check_invariants(); }
  static AttemptId id(std::uint32_t index, std::uint64_t attempt = 0) {
    return {{kPhase, index}, Attempt{attempt}};
  }

  TaskPtr add(std::uint32_t index, std::uint64_t attempt = 0) {
    EXPECT_TRUE(contributions_.reserve(id(index, attempt)));
    auto task = std::make_shared<MicrobatchTask>(id(index, attempt));
    contributions_.added(task);
    return task;
  }
  wire::ReportAck ack(std::vector<std::uint32_t> accepted, std::vector<std::uint32_t> refused) {
    wire::ReportAck ack;
    *ack.mutable_phase() = to_wire(kPhase);
    for (std::uint32_t index : accepted) ack.add_accepted(index);
    for (std::uint32_t index : refused) ack.add_refused(index);
    return ack;
  }
  // Ends the take-backs that are under way.
  void end_subtractions() {
    for (auto& done : std::exchange(subtracting_, {})) done();
  }
  void settle(std::set<std::uint32_t> owned) {
    contributions_.settle(
        kPhase, owned, [this](Result<std::vector<std::uint32_t>> missing) { settled_ = missing; });
  }

  RunConfig config_ = small_run(1, 1);
  ModelSpec spec_ = *resolve_model(config_, 31);
  StageSpec stage_{
      .stage = StageId{0}, .stages = 1, .first_layer = 0, .last_layer = config_.model.layers};
  SimRuntime runtime_{1};
  SimNetwork network_{runtime_, {}};
  SimDevice device_{runtime_.node(1), {}};
  DeviceQueue queue_{device_};
  FakeStageModel model_{spec_, stage_};
  ParameterState state_{model_, config_};
  PeerLinks links_{runtime_.node(1), network_.node(1), 1s, {.on_frame = {}, .on_lost = {}}};
  std::vector<wire::Report> reports_;
  StageContext context_{
      .runtime = runtime_.node(1),
      .queue = queue_,
      .model = model_,
      .state = state_,
      .links = links_,
      .config = config_,
      .spec = spec_,
      .stage = stage_,
      .self = {PeerId{1}, StageId{0}, Incarnation{1}},
      .era = Era{0},
      .recompute = false,
      .codecs = PhaseCodecs(config_),
      .notify_coordinator =
          [this](Frame frame) { reports_.push_back(*parse<wire::Report>(frame)); },
      .call_coordinator = {},
      .fail = [](Error error) { ADD_FAILURE() << error.what; }};
  std::vector<std::uint32_t> taken_back_;
  std::vector<std::function<void()>> subtracting_;
  Contributions contributions_{context_, [this](const TaskPtr& task, std::function<void()> done) {
                                 taken_back_.push_back(task->id.microbatch.index);
                                 subtracting_.push_back(std::move(done));
                               }};
  std::optional<Result<std::vector<std::uint32_t>>> settled_;
};

TEST_F(ContributionsTest, AnIndexIsAddedOnceWhateverTheAttempts) {
  EXPECT_FALSE(contributions_.reserve(id(3))) << "its phase is not open";
  contributions_.open(kPhase);
  add(3);
  EXPECT_FALSE(contributions_.reserve(id(3)));
  EXPECT_FALSE(contributions_.reserve(id(3, 77)));
  ASSERT_TRUE(contributions_.reserve(id(4, 77)));
  contributions_.unreserve(id(4, 77));
  EXPECT_TRUE(contributions_.reserve(id(4))) << "the claim was refused: another try may";
  contributions_.unreserve(id(3));
  EXPECT_FALSE(contributions_.reserve(id(3))) << "what is added stays added";
}

TEST_F(ContributionsTest, ReportsTravelTogether) {
  contributions_.open(kPhase);
  add(1)->loss_sum = 2;
  add(2);
  EXPECT_TRUE(reports_.empty());
  runtime_.run_for(10ms);
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].contributions_size(), 2);
  add(5);
  runtime_.run_for(10ms);
  EXPECT_EQ(reports_.size(), 2U);
}

TEST_F(ContributionsTest, ARefusedOneIsTakenBackOnce) {
  contributions_.open(kPhase);
  add(1);
  add(2);
  contributions_.on_ack(ack({1}, {2}));
  contributions_.check_invariants();
  contributions_.on_ack(ack({}, {2, 1, 9}));
  EXPECT_EQ(taken_back_, std::vector<std::uint32_t>{2})
      << "1 was accepted, 9 is unknown, 2 is under way";
  EXPECT_EQ(contributions_.count(kPhase), 2U) << "until it is out of the sums";
  end_subtractions();
  EXPECT_EQ(contributions_.count(kPhase), 1U);
  EXPECT_TRUE(contributions_.reserve(id(2, 5)));
}

TEST_F(ContributionsTest, SettlingTakesOutWhatTheLedgerDoesNotKnow) {
  contributions_.open(kPhase);
  add(1);
  add(2);
  contributions_.on_ack(ack({1}, {}));
  ASSERT_TRUE(contributions_.reserve(id(6, 9))) << "a try that will never end";
  settle({1});
  EXPECT_FALSE(settled_) << "2 is still in the sums";
  EXPECT_EQ(taken_back_, std::vector<std::uint32_t>{2});
  contributions_.on_ack(ack({}, {2}));  // the late answer says the same
  EXPECT_EQ(taken_back_.size(), 1U);
  end_subtractions();
  ASSERT_TRUE(settled_ && settled_->has_value());
  EXPECT_TRUE((*settled_)->empty());
  EXPECT_EQ(contributions_.count(kPhase), 1U);
}

TEST_F(ContributionsTest, SettlingNamesWhatIsMissing) {
  contributions_.open(kPhase);
  add(1);
  settle({1, 4});
  ASSERT_TRUE(settled_ && settled_->has_value());
  EXPECT_EQ(**settled_, std::vector<std::uint32_t>{4});
}

TEST_F(ContributionsTest, ALedgerThatContradictsItselfIsAnError) {
  contributions_.open(kPhase);
  add(1);
  contributions_.on_ack(ack({1}, {}));
  settle({});
  ASSERT_TRUE(settled_.has_value());
  EXPECT_FALSE(settled_->has_value());
}

TEST_F(ContributionsTest, NothingIsLeftOfARetiredPhase) {
  contributions_.open(kPhase);
  add(1);
  contributions_.retire(kPhase);
  runtime_.run_for(10ms);
  EXPECT_TRUE(reports_.empty());
  contributions_.on_ack(ack({}, {1}));
  EXPECT_TRUE(taken_back_.empty());
  EXPECT_EQ(contributions_.count(kPhase), 0U);
}

}  // namespace
}  // namespace swarmline
